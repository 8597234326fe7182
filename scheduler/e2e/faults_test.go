package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"tutti/scheduler/scenario"
)

// refuser is a validating webhook of pods/binding that refuses the next bindings of the pods it is told of.
type refuser struct {
	server *httptest.Server

	mu   sync.Mutex
	left []refusal
}

type refusal struct {
	pattern string
	next    int            // bindings of each pod
	seen    map[string]int // by namespace/name
}

// probe is a pod that doesn't exist and whose bindings are always refused, to see that the webhook is asked.
const probe = "refuser-probe"

// refuseBindings makes the API server refuse the next n bindings of each pod that fits the pattern.
func (c *testCluster) refuseBindings(ctx context.Context, pattern string, n int) error {
	if c.refuser == nil {
		r := &refuser{}
		r.server = httptest.NewTLSServer(r)
		if err := c.install(ctx, r); err != nil {
			r.server.Close()
			return err
		}
		c.refuser = r // for as long as the cluster: the API server forgets a webhook a moment late
	}
	c.refuser.mu.Lock()
	defer c.refuser.mu.Unlock()
	c.refuser.left = append(c.refuser.left, refusal{pattern, n, map[string]int{}})
	return nil
}

// install registers the webhook and waits until the API server asks it.
func (c *testCluster) install(ctx context.Context, r *refuser) error {
	url, fail, none := r.server.URL, admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	_, err := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "refuser"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "refuser.tutti.dev", AdmissionReviewVersions: []string{"v1"}, FailurePolicy: &fail, SideEffects: &none,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &url,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(tick) {
		err := c.Client.CoreV1().Pods("default").Bind(ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: probe}, Target: v1.ObjectReference{Kind: "Node", Name: "none"},
		}, metav1.CreateOptions{})
		if err != nil && strings.Contains(err.Error(), refused) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the API server doesn't ask the webhook: %w", err)
		}
	}
}

const refused = "this test refuses the binding"

func (r *refuser) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: r.allows(review.Request.Namespace, review.Request.Name)}
	if !review.Response.Allowed {
		review.Response.Result = &metav1.Status{Message: refused}
	}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

func (r *refuser) allows(namespace, name string) bool {
	if name == probe {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.left {
		pod := namespace + "/" + name
		if scenario.Matches(f.pattern, namespace, name) && f.seen[pod] < f.next {
			f.seen[pod]++
			return false
		}
	}
	return true
}

// forget ends all refusals.
func (r *refuser) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = nil
}

// link is a TCP proxy before the API server that can be cut.
type link struct {
	kubeconfig string
	listener   net.Listener
	to         string

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

// link makes a way to the API server that can be cut.
func (c *testCluster) link() (*link, error) {
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	l := &link{kubeconfig: filepath.Join(c.Dir, "kubeconfig-link"), open: map[net.Conn]bool{}}
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	for _, cluster := range config.Clusters {
		l.to = strings.TrimPrefix(cluster.Server, "https://")
		cluster.Server = "https://" + l.listener.Addr().String()
	}
	go l.accept()
	return l, clientcmd.WriteToFile(*config, l.kubeconfig)
}

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.to)
		if err != nil || !l.add(in, out) {
			_ = in.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				l.close(in, out)
			}()
		}
	}
}

// add keeps the connections, unless the link is cut.
func (l *link) add(both ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range both {
		if l.cut {
			_ = c.Close()
		} else {
			l.open[c] = true
		}
	}
	return !l.cut
}

func (l *link) close(both ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range both {
		_ = c.Close()
		delete(l.open, c)
	}
}

// away cuts the link for so long.
func (l *link) away(ctx context.Context, long time.Duration) {
	l.mu.Lock()
	l.cut = true
	for c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	sleepUntil(ctx, time.Now().Add(long))
	l.mu.Lock()
	l.cut = false
	l.mu.Unlock()
}

func (l *link) stop() {
	_ = l.listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Close()
	}
}
