package evaluate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// errOtherReplay means that a work folder is of another replay.
var errOtherReplay = errors.New("the work folder belongs to another replay")

// servedItem is an item as an agent read it, and what the record says that it was drawn from.
type servedItem struct {
	ID    string       `json:"id"`
	Layer memory.Layer `json:"layer"`
	Text  string       `json:"text"`

	// Tool is what it is about, Tags its kind.
	Tool string   `json:"tool,omitempty"`
	Tags []string `json:"tags,omitempty"`
	// TaskID is the run that it was drawn from; empty for a rule, which is drawn from many.
	TaskID   string   `json:"task_id,omitempty"`
	Evidence []string `json:"evidence,omitempty"`
	// Failed means that it is about a call that fails; Signature is that of a rule, whose evidence may be elsewhere.
	Failed    bool            `json:"failed,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Predicate json.RawMessage `json:"predicate,omitempty"`
}

// servedAnswer is one answer.
type servedAnswer struct {
	Items []servedItem `json:"items,omitempty"`
	// Tokens are what an agent reads of it, marks and fields included.
	Tokens int    `json:"tokens"`
	Notice string `json:"notice,omitempty"`

	recallID string
}

// runAnswers are all answers about one run.
type runAnswers struct {
	Run   string `json:"run"`
	Batch int    `json:"batch"`
	// Start is what retrieve_similar answered before the run, Calls what check_action answered before each call.
	Start servedAnswer   `json:"start"`
	Calls []servedAnswer `json:"calls"`
}

// all lists the answers, such that their items can be filled in.
func (a *runAnswers) all() []*servedAnswer {
	out := []*servedAnswer{&a.Start}
	for i := range a.Calls {
		out = append(out, &a.Calls[i])
	}
	return out
}

// replayHead says what a replay is of; one with another head cannot go on in the same folder.
type replayHead struct {
	Input      string `json:"input"`
	Runs       int    `json:"runs"`
	LearnEvery int    `json:"learn_every"`
	Embedder   string `json:"embedder"`
}

// replayLine is a line of the log: its head, the answers about a run, or that batches up to Learnt have been learnt.
type replayLine struct {
	Head    *replayHead `json:"head,omitempty"`
	Answers *runAnswers `json:"answers,omitempty"`
	Learnt  int         `json:"learnt,omitempty"`
}

// replayLog is the file of answers. A line that was cut by an interruption is written again.
type replayLog struct {
	file    *os.File
	answers map[string]runAnswers
	// learnt is how many batches have been learnt.
	learnt int
}

// openReplayLog opens the log of a folder, or begins one.
func openReplayLog(dir string, head replayHead) (*replayLog, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the work folder: %w", err)
	}
	path := filepath.Join(dir, answersFile)
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read earlier answers: %w", err)
	}
	l := &replayLog{answers: map[string]runAnswers{}}
	good := 0
	for {
		end := bytes.IndexByte(raw[good:], '\n')
		if end < 0 {
			break // An end without a newline was cut.
		}
		var line replayLine
		if err := json.Unmarshal(raw[good:good+end], &line); err != nil {
			return nil, fmt.Errorf("read earlier answers in %s: %w: remove the folder to begin anew", path, err)
		}
		switch {
		case good == 0 && (line.Head == nil || *line.Head != head):
			return nil, fmt.Errorf("%w: %s was begun with other runs or settings: give another folder, or remove this one to begin anew", errOtherReplay, dir)
		case line.Answers != nil:
			l.answers[line.Answers.Run] = *line.Answers
		default:
			l.learnt = max(l.learnt, line.Learnt)
		}
		good += end + 1
	}
	if l.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("write answers: %w", err)
	}
	if err := errors.Join(l.file.Truncate(int64(good)), seekEnd(l.file)); err != nil {
		return nil, errors.Join(fmt.Errorf("write answers: %w", err), l.file.Close())
	}
	if good == 0 {
		if err := l.write(replayLine{Head: &head}); err != nil {
			return nil, errors.Join(err, l.file.Close())
		}
	}
	return l, nil
}

func seekEnd(f *os.File) error {
	_, err := f.Seek(0, 2)
	return err //nolint:wrapcheck // The caller says what it was doing.
}

func (l *replayLog) add(a runAnswers) error {
	l.answers[a.Run] = a
	return l.write(replayLine{Answers: &a})
}

// learn takes note that batch n, which counts from 0, has been learnt.
func (l *replayLog) learn(n int) error {
	l.learnt = n + 1
	return l.write(replayLine{Learnt: l.learnt})
}

func (l *replayLog) write(line replayLine) error {
	raw, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("write answers: %w", err)
	}
	if _, err := l.file.Write(append(raw, '\n')); err != nil {
		return fmt.Errorf("write answers: %w", err)
	}
	return nil
}

func (l *replayLog) close() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("close the answers: %w", err)
	}
	return nil
}
