package main

import (
	"context"
	"io"
	"sync"
)

// interruptible gives what r gives until ctx ends. A read of a terminal or a pipe can't be ended from outside, so another
// goroutine does it, from the first read on; that one ends with the input or the process.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	pr, pw := io.Pipe()
	context.AfterFunc(ctx, func() { _ = pw.CloseWithError(ctx.Err()) })
	return &onFirstRead{Reader: pr, start: sync.OnceFunc(func() {
		go func() {
			_, err := io.Copy(pw, r)
			_ = pw.CloseWithError(err)
		}()
	})}
}

// onFirstRead leaves standard input alone for commands that do not read it.
type onFirstRead struct {
	io.Reader

	start func()
}

func (o *onFirstRead) Read(p []byte) (int, error) {
	o.start()
	return o.Reader.Read(p) //nolint:wrapcheck // A reader's errors are its own.
}
