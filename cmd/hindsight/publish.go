package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
)

func (a *app) publishCommand() *cobra.Command {
	var p publishing
	cmd := &cobra.Command{
		Use:   "publish [flags] [FILE]",
		Short: "Publish trace events, one given by flags or one JSON object a line",
		Long: "Publishes events to the stream TRACES. Fields that are missing are filled in: the id and time, and from the flags the\n" +
			"namespace, agent, session and task. With --kind one event is made from the flags; otherwise each line of the file, or\n" +
			"of standard input for -, is one. An event is masked, cut to the limits and checked before it is sent.",
		Example: "  hindsight publish --task t1 --kind task_started --data '{\"goal\":\"refund order 1042\"}'\n" +
			"  hindsight publish --namespace demo events.jsonl\n  my-agent | hindsight publish --namespace demo -",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := ""
			if len(args) > 0 {
				path = args[0]
			}
			return a.publish(cmd.Context(), p, path)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.event.Namespace, "namespace", "", "namespace of events that have none (default: HINDSIGHT_NAMESPACE)")
	f.StringVar(&p.event.AgentID, "agent", "cli", "agent id of events that have none")
	f.StringVar(&p.event.SessionID, "session", "", "session id of events that have none (default: the task id)")
	f.StringVar(&p.event.TaskID, "task", "", "task id of events that have none")
	f.StringVar(&p.event.GoalID, "goal", "", "goal id of events that have none")
	f.StringVar(&p.event.ID, "id", "", "id of the one event that --kind makes (default: a new one)")
	f.StringVar((*string)(&p.event.Kind), "kind", "", "kind of one event to make from the flags")
	f.StringVar(&p.data, "data", "{}", "data of that event, a JSON object")
	return cmd
}

// maxPublishLine is the longest line that is read, in bytes; no event can be longer.
const maxPublishLine = 16 << 20

type publishing struct {
	event events.Event
	data  string
}

// published is one line of the result.
type published struct {
	ID        string `json:"id"`
	TaskID    string `json:"task_id"`
	Duplicate bool   `json:"duplicate"`
	Line      int    `json:"line,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (a *app) publish(ctx context.Context, p publishing, path string) (err error) {
	if p.event.Namespace, err = a.namespace(p.event.Namespace); err != nil {
		return err
	}
	if (p.event.Kind != "") == (path != "") {
		return fmt.Errorf("%w: give either --kind, for one event from the flags, or a file of events, or - for standard input", errUsage)
	}
	conn, err := a.openBus(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	out := &publishedWriter{app: a}
	err = a.publishInput(ctx, conn, p, path, out)
	return out.finish(err)
}

// publishInput publishes the event of the flags, or those of the input as they come.
func (a *app) publishInput(ctx context.Context, conn *bus.Conn, p publishing, path string, out *publishedWriter) error {
	if p.event.Kind != "" {
		e := p.event
		e.Data = json.RawMessage(p.data)
		result, err := send(ctx, conn, e, p.event)
		if errors.Is(err, events.ErrInvalid) || errors.Is(err, events.ErrTooLarge) {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		if err != nil {
			return err
		}
		return out.write(result)
	}
	in, done, err := a.open(path)
	if err != nil {
		return err
	}
	defer done()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxPublishLine)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		e, err := events.Decode(nil, lines.Bytes())
		result := published{}
		if err == nil {
			result, err = send(ctx, conn, e, p.event)
		}
		if err != nil {
			result.Error = err.Error()
		}
		result.Line = n
		if writeErr := out.write(result); writeErr != nil {
			return writeErr
		}
		if errors.Is(err, bus.ErrFull) || errors.Is(err, bus.ErrUnavailable) || ctx.Err() != nil {
			return fmt.Errorf("stopped at line %d, the lines before it are published: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read events (a line may have at most %d bytes): %w", maxPublishLine, err)
	}
	return nil
}

// publishedWriter tells each result as it happens: a line for a person, an element of a JSON list for a program.
type publishedWriter struct {
	app     *app
	written int
	failed  int
}

func (w *publishedWriter) write(r published) error {
	if r.Error != "" {
		w.failed++
	}
	switch {
	case w.app.json:
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode result: %w", err)
		}
		separator := ",\n"
		if w.written == 0 {
			separator = "[\n"
		}
		w.app.printf("%s%s", separator, raw)
	case r.Error != "":
		w.app.sayf("line %d: %s\n", r.Line, r.Error)
	case r.Duplicate:
		w.app.printf("%s  (already published)\n", r.ID)
	default:
		w.app.printf("%s\n", r.ID)
	}
	w.written++
	return nil
}

// finish ends the list and says how it went; err is what ended the publishing.
func (w *publishedWriter) finish(err error) error {
	if w.app.json {
		if w.written == 0 {
			w.app.printf("[")
		}
		w.app.printf("]\n")
	}
	if err == nil && w.failed > 0 {
		return errReported
	}
	return err
}

// open gives the input: a file, or standard input for -.
func (a *app) open(path string) (io.Reader, func(), error) {
	if path == "-" {
		return a.stdin, func() {}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("open events: %w", err)
	}
	return f, func() { _ = f.Close() }, nil
}

// send fills an event in from the defaults, prepares and publishes it.
func send(ctx context.Context, conn *bus.Conn, e, defaults events.Event) (published, error) {
	e.Namespace = cmp.Or(e.Namespace, defaults.Namespace)
	e.AgentID = cmp.Or(e.AgentID, defaults.AgentID)
	e.TaskID = cmp.Or(e.TaskID, defaults.TaskID)
	e.SessionID = cmp.Or(e.SessionID, defaults.SessionID, e.TaskID)
	e.GoalID = cmp.Or(e.GoalID, defaults.GoalID)
	if e.TaskID == "" {
		return published{}, fmt.Errorf("check event: %w: task_id is missing: give --task", events.ErrInvalid)
	}
	e, raw, err := events.Prepare(e, time.Now())
	if err != nil {
		return published{}, fmt.Errorf("check event: %w", err)
	}
	duplicate, err := conn.Publish(ctx, bus.Message{Subject: subjectOf(e), ID: e.MessageID(), Data: raw})
	if err != nil {
		return published{}, fmt.Errorf("publish event %s: %w", e.ID, err)
	}
	return published{ID: e.ID, TaskID: e.TaskID, Duplicate: duplicate}, nil
}
