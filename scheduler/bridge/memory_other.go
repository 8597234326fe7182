//go:build !linux

package bridge

import "github.com/tetratelabs/wazero/experimental"

func newLinearMemory(_, _ uint64) experimental.LinearMemory { return &heapMemory{} }
