//nolint:gosec // calling C is what this file is for; signal numbers are small.
package engine

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// libc is the C library of the process.
type libc struct {
	sigaction func(signal int32, act, old unsafe.Pointer) int32
	setenv    func(name, value string, overwrite int32) int32
}

func openLibc() (*libc, error) {
	l := &libc{}
	for name, target := range map[string]any{"sigaction": &l.sigaction, "setenv": &l.setenv} {
		symbol, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
		if err != nil {
			return nil, fmt.Errorf("find %s in the C library: %w", name, err)
		}
		purego.RegisterFunc(target, symbol)
	}
	return l, nil
}

// signalGuard keeps the Go runtime's signal handlers in place. Telling libchdb
// to install none also resets those that it would have replaced, and every
// chdb_connect does so again; without SIGSEGV's handler a nil dereference
// would end the process instead of becoming a panic.
//
// Dispositions belong to the whole process, so there is a window of a few
// microseconds inside such a call. It cannot be closed from outside the
// library; connections are therefore opened at the start and then kept.
type signalGuard struct {
	mu   sync.Mutex
	libc *libc
}

// guarded are the signals whose dispositions libchdb or its base library
// touch, and those that Go needs.
var guarded = []syscall.Signal{
	syscall.SIGABRT, syscall.SIGSEGV, syscall.SIGILL, syscall.SIGBUS, syscall.SIGSYS, syscall.SIGFPE,
	syscall.SIGTSTP, syscall.SIGTRAP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP,
	syscall.SIGPIPE, syscall.SIGURG, syscall.SIGPROF, syscall.SIGCHLD, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// sigactionSize is larger than struct sigaction of glibc (152 bytes).
const sigactionSize = 256

// keep runs call and puts every guarded disposition back as it was before.
func (g *signalGuard) keep(call func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	saved := make([][sigactionSize]byte, len(guarded))
	ok := make([]bool, len(guarded))
	for i, s := range guarded {
		ok[i] = g.libc.sigaction(int32(s), nil, unsafe.Pointer(&saved[i])) == 0
	}
	call()
	for i, s := range guarded {
		if ok[i] {
			g.libc.sigaction(int32(s), unsafe.Pointer(&saved[i]), nil)
		}
	}
}
