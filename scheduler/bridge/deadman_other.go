//go:build !linux

package bridge

import (
	"errors"
	"time"
)

// deadman exists on Linux only.
type deadman struct{}

func newDeadman() (*deadman, error)           { return nil, errors.ErrUnsupported }
func (d *deadman) putOff(time.Duration) error { return nil }
func (d *deadman) close()                     {}
