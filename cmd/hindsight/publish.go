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
			"namespace, agent, session and task. Without a file and with --kind, one event is made from the flags; - or no\n" +
			"file reads lines from standard input. An event is masked and checked before it is sent.",
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
	if p.event.Kind != "" && path != "" {
		return fmt.Errorf("%w: give either --kind or a file, not both", errUsage)
	}
	conn, err := a.openBus(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	results, err := a.publishAll(ctx, conn, p, path)
	if results == nil {
		results = []published{}
	}
	failed := 0
	for _, r := range results {
		if r.Error != "" {
			failed++
			if !a.json {
				a.sayf("line %d: %s\n", r.Line, r.Error)
			}
		} else if !a.json {
			again := ""
			if r.Duplicate {
				again = "  (already published)"
			}
			a.printf("%s%s\n", r.ID, again)
		}
	}
	if a.json {
		err = errors.Join(err, a.printJSON(results))
	}
	if err == nil && failed > 0 {
		return errReported
	}
	return err
}

func (a *app) publishAll(ctx context.Context, conn *bus.Conn, p publishing, path string) ([]published, error) {
	if p.event.Kind != "" {
		e := p.event
		e.Data = json.RawMessage(p.data)
		result, err := send(ctx, conn, e, p.event)
		if errors.Is(err, events.ErrInvalid) || errors.Is(err, events.ErrTooLarge) {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		return []published{result}, err
	}
	in, done, err := a.open(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var results []published
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
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
		results = append(results, result)
		if errors.Is(err, bus.ErrFull) || errors.Is(err, bus.ErrUnavailable) || ctx.Err() != nil {
			return results, fmt.Errorf("stopped at line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return results, fmt.Errorf("read events: %w", err)
	}
	return results, nil
}

// open gives the input: a file, or standard input for - and nothing.
func (a *app) open(path string) (io.Reader, func(), error) {
	if path == "" || path == "-" {
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
	e, raw, err := events.Prepare(e, time.Now())
	if err != nil {
		return published{}, fmt.Errorf("check event: %w", err)
	}
	duplicate, err := conn.Publish(ctx, bus.Message{Subject: events.Subject(e.Namespace, e.Kind), ID: e.MessageID(), Data: raw})
	if err != nil {
		return published{}, fmt.Errorf("publish event %s: %w", e.ID, err)
	}
	return published{ID: e.ID, TaskID: e.TaskID, Duplicate: duplicate}, nil
}
