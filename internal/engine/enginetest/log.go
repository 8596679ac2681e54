package enginetest

import (
	"bytes"
	"sync"
)

// Log is what a process writes while a test reads it. The zero value is empty and ready.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write adds to it. It never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p) //nolint:wrapcheck // A buffer does not fail.
}

// String is all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
