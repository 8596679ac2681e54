package bus

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
)

// TestBrokenConnectionIsUnavailable is about errors that nats.go passes on as
// the network gave them, in the moment between a server's end and the client's
// notice of it; PublishAll must wait after them and not give up.
func TestBrokenConnectionIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET},
		&net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE},
		net.ErrClosed,
		io.EOF,
	} {
		if got := translate(err); !errors.Is(got, ErrUnavailable) || !errors.Is(got, err) {
			t.Errorf("translate(%v) = %v, want ErrUnavailable with the cause", err, got)
		}
	}
}
