package localcluster

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStartRefuses: what can't work is said, with where and why, and leaves nothing behind.
func TestStartRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	fails := filepath.Join(t.TempDir(), "fails")
	if err := os.WriteFile(fails, []byte("#!/bin/sh\necho no such flag\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	used := t.TempDir()
	for name, c := range map[string]struct {
		options Options
		why     []string
	}{
		"a port in use":           {Options{Port: taken.Addr().(*net.TCPAddr).Port, Binary: fails}, []string{"port", "in use"}},
		"no such binary":          {Options{Binary: "/no/such/binary"}, []string{"/no/such/binary"}},
		"an API server that ends": {Options{Dir: used, Binary: fails}, []string{"kube-apiserver", "exit status 1", "no such flag"}},
		"a file for a directory":  {Options{Dir: file, Binary: fails}, []string{file}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			c1, err := Start(t.Context(), c.options)
			if err == nil {
				c1.Stop()
				t.Fatal("it starts")
			}
			for _, text := range c.why {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error is %v, without %q", err, text)
				}
			}
			if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
				t.Errorf("%v is left behind", left)
			}
		})
	}
}

// TestOneClusterPerDirectory: a directory in use is refused, etcd would wait for it for ever.
func TestOneClusterPerDirectory(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Options{Dir: dir, Binary: "/no/such/binary"})
	if err == nil || !strings.Contains(err.Error(), dir+" is in use by another cluster") {
		t.Errorf("the error is %v", err)
	}
	_ = lock.Close()
	if lock, err = lockDir(dir); err != nil {
		t.Errorf("after the other's end: %v", err)
	} else {
		_ = lock.Close()
	}
}

func TestPortsAreGivenOnceAndNotToOutgoingConnections(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < firstPort || port >= endPort {
			t.Errorf("port %d: given before: %v, want one from %d to %d", port, seen[port], firstPort, endPort-1)
		}
		seen[port] = true
	}
}
