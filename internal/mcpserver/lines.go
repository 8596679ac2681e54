package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLineBytes bounds one line of stdin.
const maxLineBytes = 4 << 20

// lineTransport is the protocol's stdio: a message a line. The library's own ends the session at the first line that is
// no message; this one answers such a line with an error and goes on.
type lineTransport struct {
	in  io.Reader
	out io.Writer
}

// Connect implements [mcp.Transport].
func (t lineTransport) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConnection{out: t.out, messages: make(chan jsonrpc.Message), closed: make(chan struct{}), ended: make(chan struct{})}
	// The reader lives as long as its input: a blocked read of stdin cannot be ended from outside, and must not keep the
	// process from ending. Close frees it wherever else it waits.
	go c.read(t.in)
	return c, nil
}

type lineConnection struct {
	messages chan jsonrpc.Message
	closed   chan struct{}
	// ended is closed when there is no more input; cause says why.
	ended chan struct{}
	cause error
	once  sync.Once

	writing sync.Mutex
	out     io.Writer
}

// SessionID implements [mcp.Connection].
func (c *lineConnection) SessionID() string { return "" }

// Read implements [mcp.Connection].
func (c *lineConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-c.messages:
		return m, nil
	case <-c.ended:
		return nil, c.cause
	case <-c.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements [mcp.Connection].
func (c *lineConnection) Write(_ context.Context, m jsonrpc.Message) error {
	raw, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	return c.writeLine(raw)
}

func (c *lineConnection) writeLine(raw []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.out.Write(append(raw, '\n')); err != nil {
		return fmt.Errorf("write a message: %w", err)
	}
	return nil
}

// Close implements [mcp.Connection].
func (c *lineConnection) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// read hands on each line that is a message, until the input ends or the connection is closed.
func (c *lineConnection) read(in io.Reader) {
	defer close(c.ended)
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, tooLong, err := readLine(lines)
		if m, fault := readMessage(line, tooLong); fault != nil {
			if err := c.writeLine(faultReply(line, *fault)); err != nil {
				c.cause = err
				return
			}
		} else if m != nil {
			select {
			case c.messages <- m:
			case <-c.closed:
				c.cause = io.EOF
				return
			}
		}
		if err != nil {
			c.cause = err
			return
		}
	}
}

// readLine reads one line of up to maxLineBytes; of a longer one it keeps nothing.
func readLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLineBytes {
			line, tooLong = nil, true
		}
		if !tooLong {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err //nolint:wrapcheck // io.EOF is the end and not a failure.
		}
	}
}

// readMessage reads a line. A blank one is neither a message nor a fault.
func readMessage(line []byte, tooLong bool) (jsonrpc.Message, *jsonrpc.Error) {
	line = bytes.TrimSpace(line)
	switch {
	case tooLong:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("the line is longer than %d bytes and was dropped", maxLineBytes)}
	case len(line) == 0:
		return nil, nil //nolint:nilnil // see above.
	case !json.Valid(line):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the line is not JSON and was dropped"}
	case line[0] == '[':
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "batches are not supported: send each message on a line of its own"}
	}
	m, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the line is not a JSON-RPC 2.0 message and was dropped"}
	}
	return m, nil
}

// faultReply answers a line that is no message, under its id where it has one.
func faultReply(line []byte, fault jsonrpc.Error) []byte {
	id := json.RawMessage("null")
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) == nil {
		if given := bytes.TrimSpace(fields["id"]); len(given) > 0 && (given[0] == '"' || given[0] >= '0' && given[0] <= '9') {
			id = given
		}
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, fault.Code, quoted(fault.Message))
}
