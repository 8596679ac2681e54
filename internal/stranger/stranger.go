// Package stranger tells what kind of server answers at an address where another was expected, so that a process can
// refuse a wrong address with words that help instead of waiting for ever.
//
// It opens one connection, waits a moment for a greeting, says one line of HTTP if there is none, and looks at the first
// bytes of the answer. It sends no credentials, keeps nothing, and when nothing can be told it says so: a server that is
// away, starting or frozen is never called a stranger.
package stranger

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// Kind is a kind of server.
type Kind int

// The kinds that are told apart.
const (
	// Unknown means that nothing was answered: the server is away, starting or frozen.
	Unknown Kind = iota
	// HTTP is any server that answers a line of HTTP with HTTP.
	HTTP
	// NATS greets with its INFO.
	NATS
	// TLS wants a secured connection first.
	TLS
	// HTTP2 is a server for gRPC, such as Milvus.
	HTTP2
	// Other is any other server that said something.
	Other
)

// Answer is what was found.
type Answer struct {
	Kind Kind
	// Words describe the server to a person, such as `an HTTP server ("HTTP/1.0 404 Not Found")`; empty when it is unknown.
	Words string
	// Text is what it said, the first 512 bytes at most.
	Text string
}

const (
	// dialTimeout bounds the connecting, greetTimeout the wait for a greeting: servers that speak first do so at once.
	dialTimeout  = 2 * time.Second
	greetTimeout = 500 * time.Millisecond
	// answerTimeout bounds the wait for the answer to a line of HTTP.
	answerTimeout = 2 * time.Second
	longest       = 512
)

// At asks the server at an address like host:port. It takes 5 seconds at most, and never fails: what cannot be found out
// is [Unknown].
func At(ctx context.Context, address string) Answer {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+greetTimeout+answerTimeout)
	defer cancel()
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return Answer{}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	said := read(conn, greetTimeout)
	if len(said) == 0 {
		if _, err := fmt.Fprintf(conn, "GET /ping HTTP/1.0\r\nHost: %s\r\n\r\n", address); err != nil {
			return Answer{}
		}
		said = read(conn, answerTimeout)
	}
	return classify(said)
}

// read gives what comes within a time, up to the first 512 bytes; an answer of HTTP to its end.
func read(conn net.Conn, within time.Duration) []byte {
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil
	}
	said := make([]byte, 0, longest)
	for len(said) < longest {
		n, err := conn.Read(said[len(said):longest])
		said = said[:len(said)+n]
		if err != nil || n > 0 && !bytes.HasPrefix(said, []byte("HTTP/")) {
			break
		}
	}
	return said
}

func classify(said []byte) Answer {
	text := string(said)
	switch {
	case text == "":
		return Answer{}
	case strings.HasPrefix(text, "INFO {"):
		return Answer{NATS, "a NATS server", text}
	case strings.HasPrefix(text, "HTTP/"):
		return Answer{HTTP, fmt.Sprintf("an HTTP server (%q)", firstLine(text)), text}
	case strings.HasPrefix(text, "\x15\x03"):
		return Answer{TLS, "a server that wants TLS", text}
	case strings.HasPrefix(text, "\x00\x00") && len(text) > 3 && text[3] == 4: // the frame SETTINGS
		return Answer{HTTP2, "an HTTP/2 server (gRPC, such as Milvus)", text}
	default:
		return Answer{Other, fmt.Sprintf("a server that says %q", firstLine(text)), text}
	}
}

// firstLine is what a person needs of an answer, 80 bytes at most.
func firstLine(text string) string {
	const most = 80
	line, _, _ := strings.Cut(text, "\n")
	line = strings.TrimSpace(line)
	if len(line) > most {
		line = line[:most] + "…"
	}
	return strings.ToValidUTF8(line, "?")
}
