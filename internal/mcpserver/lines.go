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
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxLineBytes bounds one line of stdin.
	maxLineBytes = 4 << 20
	// lastAnswers is how long calls in flight have to be answered once the input has ended: whoever pipes some lines in
	// wants all the answers, and a client that is gone wants the process to end.
	lastAnswers = 2 * time.Second
)

// lineConnection is the protocol's stdio: a message a line. The library's own ends the session at the first line that is
// no message; this one answers such a line with an error and goes on.
type lineConnection struct {
	messages chan jsonrpc.Message
	closed   chan struct{}
	// ended is closed when there is no more input; cause says why.
	ended chan struct{}
	cause error
	once  sync.Once
	// answers are lines to be written.
	answers chan outgoing

	counting sync.Mutex
	// open counts calls without an answer; idle is closed when there is none, and nil until someone waits for that.
	open int
	idle chan struct{}
}

// outgoing is a line to be written; what came of it goes to done, which has room for it.
type outgoing struct {
	line []byte
	done chan error
}

// newLineConnection begins to read. A blocked read of stdin or write of stdout cannot be ended from outside, and must not
// keep the process from ending: the two goroutines live as long as that blocks, and Close frees them wherever else they
// wait.
func newLineConnection(in io.Reader, out io.Writer) *lineConnection {
	c := &lineConnection{
		messages: make(chan jsonrpc.Message), closed: make(chan struct{}), ended: make(chan struct{}), answers: make(chan outgoing),
	}
	go c.read(in)
	go c.write(out)
	return c
}

// Connect implements [mcp.Transport] for a connection that is there already.
func (c *lineConnection) Connect(context.Context) (mcp.Connection, error) { return c, nil }

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
	err = c.writeLine(raw)
	if _, isAnswer := m.(*jsonrpc.Response); isAnswer {
		c.count(-1)
	}
	return err
}

// count takes note of a call or an answer.
func (c *lineConnection) count(change int) {
	c.counting.Lock()
	defer c.counting.Unlock()
	c.open += change
	if c.open <= 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// finish waits, once all is to end, for the answers to the calls in flight.
func (c *lineConnection) finish() {
	c.counting.Lock()
	if c.open <= 0 {
		c.counting.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.counting.Unlock()
	patience := time.NewTimer(lastAnswers)
	defer patience.Stop()
	select {
	case <-idle:
	case <-c.closed:
	case <-patience.C:
	}
}

// writeLine waits until a line is written or the connection closed.
func (c *lineConnection) writeLine(raw []byte) error {
	o := outgoing{append(raw, '\n'), make(chan error, 1)}
	select {
	case c.answers <- o:
	case <-c.closed:
		return io.ErrClosedPipe
	}
	select {
	case err := <-o.done:
		return err
	case <-c.closed:
		return io.ErrClosedPipe
	}
}

// write writes lines until the connection is closed.
func (c *lineConnection) write(out io.Writer) {
	for {
		select {
		case o := <-c.answers:
			_, err := out.Write(o.line)
			if err != nil {
				err = fmt.Errorf("write a message: %w", err)
			}
			o.done <- err
		case <-c.closed:
			return
		}
	}
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
			if call, isRequest := m.(*jsonrpc.Request); isRequest && call.IsCall() {
				c.count(1)
			}
			select {
			case c.messages <- m:
			case <-c.closed:
				c.cause = io.EOF
				return
			}
		}
		if err != nil {
			c.finish()
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
