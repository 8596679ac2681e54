package evaluate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/importer"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

// errNoRuns means that the files hold nothing that could be replayed.
var errNoRuns = errors.New("no recorded runs")

// recordedRun is one task as it was recorded: what an agent would have known, and how it ended.
type recordedRun struct {
	taskID, goalID, taskType, goal string
	began                          time.Time
	status                         events.Status
	calls                          []recordedCall
	// encoded are the events to learn from, a JSON value each.
	encoded [][]byte
	// lines are what the events came from, for messages.
	path string
	line int
}

// recordedCall is one decision of the agent.
type recordedCall struct {
	eventID    string
	tool       string
	parameters json.RawMessage
	status     events.Status
	message    string
	// signature is the masked text of the error; empty for a call that worked.
	signature string
	// values are the values of the parameters by path.
	values map[string]map[string]bool
}

// errorKey is an error without its values: what repeats.
type errorKey struct{ tool, signature string }

func (c recordedCall) key() errorKey { return errorKey{c.tool, c.signature} }

func (c recordedCall) failed() bool { return c.signature != "" }

func (r *recordedRun) failed() bool { return r.status == events.StatusFailure }

// silent reports a failed run in which every call worked.
func (r *recordedRun) silent() bool {
	return r.failed() && !slices.ContainsFunc(r.calls, recordedCall.failed)
}

func (r *recordedRun) uses(tool string) bool {
	return slices.ContainsFunc(r.calls, func(c recordedCall) bool { return c.tool == tool })
}

// steps are the calls as the domain has them.
func (r *recordedRun) steps() []memory.Step {
	out := make([]memory.Step, len(r.calls))
	for i, c := range r.calls {
		out[i] = memory.Step{Step: i + 1, EventID: c.eventID, Tool: c.tool, Parameters: c.parameters, Status: c.status, ErrorMessage: c.message}
	}
	return out
}

// readRuns reads the runs of all files by way of the importer, which neither decodes what people judged afterwards nor the
// script of a simulated user, and puts them in their order: by the time of the first event, then as they stand in the
// files. The importer makes times up by trial where there are none, so that this is by trial, then by place.
func readRuns(ctx context.Context, paths []string, logger *slog.Logger) ([]*recordedRun, error) {
	im, err := importer.New(importer.Options{Namespace: replayNamespace, OverrideNamespace: true})
	if err != nil {
		return nil, fmt.Errorf("read recorded runs: %w", err)
	}
	byTask := map[string]*recordedRun{}
	var runs []*recordedRun
	for _, path := range paths {
		for item := range im.Read(ctx, path) {
			if p := item.Problem; p != nil {
				if p.Line == 0 && !p.Skipped {
					return nil, fmt.Errorf("read recorded runs from %s: %s: %w", path, p.Reason, p.Err)
				}
				logger.Warn("a line is not replayed", "path", p.Path, "line", p.Line, "reason", p.Reason)
			}
			if item.Record == nil {
				continue
			}
			run := byTask[item.Record.Key.TaskID]
			if run == nil {
				run = &recordedRun{taskID: item.Record.Key.TaskID, path: path, line: item.Record.Line}
				byTask[run.taskID] = run
				runs = append(runs, run)
			}
			if err := run.add(item.Record); err != nil {
				return nil, fmt.Errorf("read recorded runs from %s line %d: %w", path, item.Record.Line, err)
			}
		}
	}
	runs = slices.DeleteFunc(runs, func(r *recordedRun) bool { return r.goal == "" && len(r.calls) == 0 })
	if len(runs) == 0 {
		return nil, fmt.Errorf("%w in %s", errNoRuns, strings.Join(paths, ", "))
	}
	slices.SortStableFunc(runs, func(a, b *recordedRun) int { return a.began.Compare(b.began) })
	return runs, nil
}

// add takes the events of one record.
func (r *recordedRun) add(record *importer.Record) error {
	for i, e := range record.Events {
		if e.Kind == events.KindItemWritten || e.Kind == events.KindItemChanged {
			continue // What is written on purpose is not learnt from a run.
		}
		r.encoded = append(r.encoded, record.Encoded[i])
		r.goalID = cmp.Or(r.goalID, e.GoalID)
		if r.began.IsZero() || e.Time.Before(r.began) {
			r.began = e.Time
		}
		if err := r.event(e); err != nil {
			return err
		}
	}
	return nil
}

func (r *recordedRun) event(e events.Event) error {
	switch e.Kind {
	case events.KindTaskStarted:
		data, err := events.DecodeData[events.TaskStarted](e)
		if err != nil {
			return fmt.Errorf("read the start of a task: %w", err)
		}
		r.goal, r.taskType = cmp.Or(data.Goal, data.InputSummary), data.TaskType
	case events.KindTaskFinished:
		data, err := events.DecodeData[events.TaskFinished](e)
		if err != nil {
			return fmt.Errorf("read the end of a task: %w", err)
		}
		r.status = data.Status
	case events.KindStepFinished:
		data, err := events.DecodeData[events.StepFinished](e)
		if err != nil {
			return fmt.Errorf("read a step: %w", err)
		}
		if data.Actor == events.ActorUser {
			return nil
		}
		call := recordedCall{
			eventID: e.ID, tool: data.Tool, parameters: data.Parameters, status: data.Status, message: cmp.Or(data.ErrorMessage, data.ErrorType),
			values: parameterValues(data.Parameters),
		}
		call.signature = memory.StepSignature(memory.Step{Status: data.Status, ErrorMessage: data.ErrorMessage, ErrorType: data.ErrorType})
		r.calls = append(r.calls, call)
	default:
	}
	return nil
}

// maxValueWords is how many words a parameter may have to be compared: longer ones are prose, which is never the same
// twice.
const maxValueWords = 3

// parameterValues lists the values of parameters by path, such as passengers[].first_name.
func parameterValues(parameters json.RawMessage) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	decoder := json.NewDecoder(bytes.NewReader(parameters))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) == nil {
		collectValues("", value, out)
	}
	for path, values := range out {
		for v := range values {
			if len(strings.Fields(v)) > maxValueWords {
				delete(out, path)
				break
			}
		}
	}
	return out
}

func collectValues(path string, value any, into map[string]map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			below := name
			if path != "" {
				below = path + "." + name
			}
			collectValues(below, member, into)
		}
	case []any:
		for _, entry := range v {
			collectValues(path+"[]", entry, into)
		}
	default:
		if into[path] == nil {
			into[path] = map[string]bool{}
		}
		into[path][fmt.Sprint(v)] = true
	}
}

// batches cuts the stream: at most size runs, and never two of one goal, so that each run is asked about with all earlier
// runs of its goal learnt, and none of them is reflected beside another whose outcome it is compared with.
func batches(runs []*recordedRun, size int) [][]*recordedRun {
	var out [][]*recordedRun
	var batch []*recordedRun
	goals := map[string]bool{}
	for _, r := range runs {
		if len(batch) == size || r.goalID != "" && goals[r.goalID] {
			out, batch = append(out, batch), nil
			clear(goals)
		}
		batch = append(batch, r)
		goals[r.goalID] = true
	}
	return append(out, batch)
}

// digest names the input of a replay, so that the answers of another one are not taken for its own.
func digest(runs []*recordedRun) string {
	h := sha256.New()
	for _, r := range runs {
		for _, raw := range r.encoded {
			_, _ = h.Write(raw) // A hash never fails.
			_, _ = h.Write([]byte{'\n'})
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
