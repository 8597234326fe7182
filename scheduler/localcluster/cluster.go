// Package localcluster runs etcd and kube-apiserver on this machine, for trying things out and for tests. Everything
// listens on 127.0.0.1 only, with TLS and a random token.
//
// etcd runs in the process. The API server is a child process: the binary that Options.Binary names is started with
// "kube-apiserver" as its first argument, so that it can be stopped and started alone.
package localcluster

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Options of a cluster. The zero value but for Binary is usable.
type Options struct {
	Dir    string // of all data, which a later cluster finds again; "": a temporary one, removed at Stop
	Port   int    // of the API server; 0: a free one
	Binary string // started as "Binary kube-apiserver …"
}

// Cluster is a running etcd and API server.
type Cluster struct {
	Dir        string
	Kubeconfig string // file, readable by its owner only
	Config     *rest.Config
	Client     kubernetes.Interface

	temporary bool
	lock      *os.File // of Dir
	binary    string
	args      []string
	etcd      *embed.Etcd
	api       *Process
}

// readyTimeout bounds the wait for the API server.
const readyTimeout = 90 * time.Second

// Start starts etcd and the API server and waits until both serve.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	c := &Cluster{Dir: o.Dir, binary: o.Binary}
	if c.Dir == "" {
		if c.Dir, err = os.MkdirTemp("", "tutti-local-"); err != nil {
			return nil, err
		}
		c.temporary = true
	} else if err = os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.lock, err = lockDir(c.Dir); err != nil {
		return nil, err
	}
	port := o.Port
	if port == 0 {
		if port, err = freePort(); err != nil {
			return nil, err
		}
	} else if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err != nil {
		return nil, fmt.Errorf("the API server's port: %w", err)
	} else {
		_ = l.Close()
	}
	etcdURL, err := c.startEtcd(ctx)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	token, err := c.credentials()
	if err != nil {
		return nil, err
	}
	c.args = []string{
		"kube-apiserver", "--etcd-servers=" + etcdURL, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port), "--cert-dir=" + filepath.Join(c.Dir, "certs"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + filepath.Join(c.Dir, "sa.key"),
		"--service-account-signing-key-file=" + filepath.Join(c.Dir, "sa.key"),
		"--token-auth-file=" + filepath.Join(c.Dir, "tokens.csv"), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24", "--anonymous-auth=false",
		// No controller makes service accounts, and no kubelet reports node conditions.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false",
		"--watch-cache-sizes=pods#20000,nodes#10000", "--v=0",
	}
	if err = c.StartAPIServer(); err != nil {
		return nil, err
	}
	if err = c.writeKubeconfig(fmt.Sprintf("https://127.0.0.1:%d", port), token); err != nil {
		return nil, err
	}
	if err = c.WaitReady(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// lockDir keeps other clusters out of a directory while the file is open.
func lockDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s is in use by another cluster", dir)
	}
	return file, nil
}

func (c *Cluster) startEtcd(ctx context.Context) (string, error) {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(c.Dir, "etcd")
	cfg.LogLevel = "error"
	cfg.UnsafeNoFsync = true // the data needn't outlive a power cut
	cfg.QuotaBackendBytes = 4 << 30
	var urls [2]url.URL
	for i := range urls {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		urls[i] = url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(port)}
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = urls[:1], urls[:1]
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = urls[1:], urls[1:]
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	var err error
	if c.etcd, err = embed.StartEtcd(cfg); err != nil {
		return "", err
	}
	select {
	case <-c.etcd.Server.ReadyNotify():
		return urls[0].String(), nil
	case err := <-c.etcd.Err():
		return "", err
	case <-time.After(readyTimeout):
		return "", errors.New("not ready in time")
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// credentials writes the service account key and a token of the group system:masters.
func (c *Cluster) credentials() (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(filepath.Join(c.Dir, "sa.key"), block, 0o600); err != nil {
		return "", err
	}
	random := make([]byte, 24)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	token := hex.EncodeToString(random)
	return token, os.WriteFile(filepath.Join(c.Dir, "tokens.csv"), []byte(token+",admin,admin,system:masters\n"), 0o600)
}

func (c *Cluster) writeKubeconfig(server, token string) error {
	certificate := filepath.Join(c.Dir, "certs", "apiserver.crt")
	deadline := time.Now().Add(readyTimeout)
	var ca []byte
	for {
		var err error
		if ca, err = os.ReadFile(certificate); err == nil && len(ca) > 0 {
			break
		}
		if err := c.api.Err(); err != nil {
			return fmt.Errorf("kube-apiserver: %w", err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kube-apiserver wrote no certificate in %v; %s", readyTimeout, c.api.logEnd())
		}
		time.Sleep(50 * time.Millisecond)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["tutti-local"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["tutti-local"] = &clientcmdapi.Context{Cluster: "tutti-local", AuthInfo: "admin"}
	config.CurrentContext = "tutti-local"
	c.Kubeconfig = filepath.Join(c.Dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, c.Kubeconfig); err != nil {
		return err
	}
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	c.Config.QPS, c.Config.Burst = 5000, 5000
	c.Client, err = kubernetes.NewForConfig(c.Config)
	return err
}

// WaitReady waits until the API server says that it is ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	deadline := time.Now().Add(readyTimeout)
	for {
		err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(2 * time.Second).Do(ctx).Error()
		if err == nil {
			return nil
		}
		if exit := c.api.Err(); exit != nil {
			return fmt.Errorf("kube-apiserver: %w", exit)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kube-apiserver is not ready after %v (%w); %s", readyTimeout, err, c.api.logEnd())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// StartAPIServer starts the API server; Start has done it once.
func (c *Cluster) StartAPIServer() (err error) {
	c.api, err = StartProcess(filepath.Join(c.Dir, "kube-apiserver.log"), c.binary, c.args...)
	return err
}

// StopAPIServer kills the API server. etcd keeps what it wrote.
func (c *Cluster) StopAPIServer() {
	c.api.Kill()
}

// Stop ends everything, and removes a temporary directory.
func (c *Cluster) Stop() {
	if c.api != nil {
		c.api.Stop(5 * time.Second)
	}
	if c.etcd != nil {
		c.etcd.Close()
	}
	if c.temporary {
		_ = os.RemoveAll(c.Dir)
	}
	if c.lock != nil {
		_ = c.lock.Close()
	}
}

// Ports below those that systems give to outgoing connections (from 32768 on Linux), since one of them could be given
// away between its choice and the start of the server that it is for.
const firstPort, endPort = 20000, 32768

// given are the ports that servers of this process were told to listen on, which may not listen yet.
var given sync.Map

func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + mathrand.IntN(endPort-firstPort)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d: %w", firstPort, endPort-1, err)
}

// Process is a child process whose output goes to a file. It ends with its parent.
type Process struct {
	Log string

	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// StartProcess starts a child. Its log file is appended to.
func StartProcess(log, binary string, args ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	// A group of its own, so that Ctrl-C reaches the parent only, which stops its children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{Log: log, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Err is why the process has ended, nil while it runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		if p.err == nil {
			return fmt.Errorf("it ended; %s", p.logEnd())
		}
		return fmt.Errorf("%w; %s", p.err, p.logEnd())
	default:
		return nil
	}
}

// logEnd is the end of the log, since the file may go with its directory.
func (p *Process) logEnd() string {
	log, err := os.ReadFile(p.Log)
	if err != nil {
		return fmt.Sprintf("its log can't be read: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return fmt.Sprintf("its log %s ends so:\n%s", p.Log, strings.Join(lines[max(0, len(lines)-8):], "\n"))
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process at once, as kill -9 does, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop asks the process to end and kills it when it has not after so long.
func (p *Process) Stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Kill()
	}
}
