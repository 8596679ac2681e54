package bus_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hindsight-memory/hindsight/internal/bus"
)

func TestReplay(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	msgs := messages(10)
	msgs[2].Header = map[string][]string{"ce-id": {"2"}, "Nats-Expected-Last-Sequence": {"2"}}
	if _, err := conn.PublishAll(t.Context(), msgs[:2]); err != nil {
		t.Fatal(err)
	}
	for _, m := range msgs[2:] { // one by one: the third has a condition on what was before
		if _, err := conn.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	var repaired atomic.Bool
	seen := make(chan bus.Message, 100)
	o := options()
	o.BatchSize = 5
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		verdicts := make([]error, len(batch))
		for i, m := range batch {
			if !repaired.Load() {
				verdicts[i] = bus.Discard("malformed", errBroken)
			} else {
				seen <- m
			}
		}
		return verdicts
	})
	all := letters(t, conn, 10)
	eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
	repaired.Store(true)

	third := all[slices.IndexFunc(all, func(d bus.DeadLetter) bool { return d.MessageID == msgs[2].ID })]
	n, err := conn.ReplayDeadLetters(t.Context(), []string{"no such letter", third.ID}, false)
	if n != 1 || !errors.Is(err, bus.ErrNotFound) || !strings.Contains(err.Error(), "no such letter") {
		t.Fatalf("ReplayDeadLetters = %d, %v, want 1 and ErrNotFound naming the id", n, err)
	}
	again := receive(t, "the replayed message", seen)
	if again.Subject != traceSubject || !bytes.Equal(again.Data, msgs[2].Data) || again.ID == msgs[2].ID || again.ID == "" ||
		!slices.Equal(again.Header["ce-id"], []string{"2"}) || again.Header["Nats-Expected-Last-Sequence"] != nil {
		t.Errorf("replayed as %+v", again)
	}
	letters(t, conn, 9)

	if n, err := conn.ReplayDeadLetters(t.Context(), nil, true); n != 9 || err != nil {
		t.Fatalf("ReplayDeadLetters = %d, %v, want 9, nil", n, err)
	}
	for range 9 {
		receive(t, "a replayed message", seen)
	}
	letters(t, conn, 0)
	if n, err := conn.ReplayDeadLetters(t.Context(), nil, true); n != 0 || err != nil {
		t.Fatalf("ReplayDeadLetters of nothing = %d, %v, want 0, nil", n, err)
	}
}

// What fails again after a replay is another letter, not lost as a duplicate.
func TestReplayFailsAgain(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	publish(t, conn, messages(1))
	run(t, conn, options(), func(context.Context, []bus.Message) []error { return []error{bus.Discard("malformed", nil)} })
	first := letters(t, conn, 1)[0]
	for range 3 {
		if n, err := conn.ReplayDeadLetters(t.Context(), nil, true); n != 1 || err != nil {
			t.Fatalf("ReplayDeadLetters = %d, %v, want 1, nil", n, err)
		}
		next := letters(t, conn, 1)[0]
		if next.ID == first.ID {
			t.Fatalf("letter %s again, want another id", next.ID)
		}
		first = next
	}
}

func TestDeadLetterQuery(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	publish(t, conn, append(messages(4), bus.Message{Subject: bus.ReflectSubject("acme"), ID: "r"}))
	if got, err := conn.DeadLetters(t.Context(), bus.DeadLetterQuery{}); err != nil || len(got) != 0 {
		t.Fatalf("DeadLetters = %v, %v, want none", got, err)
	}
	// Somebody else's message among the letters is passed over.
	_, js := s.raw(t)
	if _, err := js.Publish(t.Context(), "hindsight.v1.deadletter.other", []byte("x")); err != nil {
		t.Fatal(err)
	}
	handler := func(_ context.Context, batch []bus.Message) []error {
		return []error{bus.Discard(map[bool]string{true: "odd", false: "even"}[batch[0].Sequence%2 == 1], nil)}
	}
	run(t, conn, options(), handler)
	o := options()
	o.Stream = bus.StreamReflect
	run(t, conn, o, handler)
	all := letters(t, conn, 5)
	for name, test := range map[string]struct {
		query bus.DeadLetterQuery
		want  int
	}{
		"stream": {bus.DeadLetterQuery{Stream: bus.StreamReflect}, 1},
		"reason": {bus.DeadLetterQuery{Reason: "even"}, 2},
		"both":   {bus.DeadLetterQuery{Stream: bus.StreamTraces, Reason: "odd"}, 2},
		"limit":  {bus.DeadLetterQuery{Limit: 3}, 3},
		"since":  {bus.DeadLetterQuery{Since: time.Now().Add(time.Hour)}, 0},
		"last":   {bus.DeadLetterQuery{Since: all[4].Time}, 1},
	} {
		got, err := conn.DeadLetters(t.Context(), test.query)
		if err != nil || len(got) != test.want {
			t.Errorf("%s: %d letters, %v, want %d", name, len(got), err, test.want)
		}
	}
}

// A message that just fits is too large together with what a letter adds.
func TestLetterOfLargestMessage(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	noise := make([]byte, 1<<20-200)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("hindsight "), (1<<20-200)/10)
	publish(t, conn, []bus.Message{{Subject: traceSubject, ID: "text", Data: text}, {Subject: traceSubject, ID: "noise", Data: noise}})
	run(t, conn, options(), func(context.Context, []bus.Message) []error {
		return []error{bus.Discard("malformed", errors.New(strings.Repeat("ä", 4000)))}
	})
	got := letters(t, conn, 2)
	eventually(t, "stream empty", func() bool { return count(t, js, bus.StreamTraces) == 0 })
	for _, d := range got {
		switch d.MessageID {
		case "text":
			if !bytes.Equal(d.Payload, text) || d.CutFrom != 0 {
				t.Errorf("text: %d bytes, cut from %d, want all of it", len(d.Payload), d.CutFrom)
			}
		case "noise":
			if d.CutFrom != len(noise) || len(d.Payload) < 1_000_000 || !bytes.HasPrefix(noise, d.Payload) {
				t.Errorf("noise: %d bytes, cut from %d, want nearly all and said so", len(d.Payload), d.CutFrom)
			}
		}
		if len(d.Error) > 2<<10 || !strings.HasPrefix(d.Error, "malformed: ä") || strings.ContainsRune(d.Error, '\uFFFD') {
			t.Errorf("error of %d bytes: %.40q", len(d.Error), d.Error)
		}
	}
	n, err := conn.ReplayDeadLetters(t.Context(), nil, true)
	if n != 1 || err == nil || !strings.Contains(err.Error(), "part of") {
		t.Errorf("ReplayDeadLetters = %d, %v, want 1 and an error about the one that is incomplete", n, err)
	}
}

// The letters are themselves handled by a worker; what that discards must not
// become letters about letters.
func TestLettersBreedNoLetters(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	publish(t, conn, messages(2))
	run(t, conn, options(), func(context.Context, []bus.Message) []error { return []error{bus.Discard("malformed", nil)} })
	letters(t, conn, 2)
	o := options()
	o.Stream, o.Durable = bus.StreamDeadLetter, "letters"
	parsed := make(chan bus.DeadLetter, 10)
	run(t, conn, o, func(_ context.Context, batch []bus.Message) []error {
		d, err := bus.ParseDeadLetter(batch[0])
		if err != nil {
			t.Errorf("ParseDeadLetter: %v", err)
		}
		parsed <- d
		return []error{bus.Discard("no store", nil)}
	})
	ids := map[string]bool{receive(t, "a letter", parsed).ID: true, receive(t, "a letter", parsed).ID: true}
	if len(ids) != 2 {
		t.Errorf("letters %v, want two different ones", ids)
	}
	letters(t, conn, 2) // they stay, and are no more
}

// A letter's id must not repeat when the stream was made anew.
func TestLetterIDSurvivesNewStream(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	run(t, conn, options(), func(context.Context, []bus.Message) []error { return []error{bus.Discard("malformed", nil)} })
	publish(t, conn, messages(1))
	letters(t, conn, 1)
	if err := js.DeleteStream(t.Context(), bus.StreamTraces); err != nil {
		t.Fatal(err)
	}
	if err := conn.EnsureStreams(t.Context(), bus.StreamConfig{}); err != nil {
		t.Fatal(err)
	}
	publish(t, conn, messages(1))
	got := letters(t, conn, 2)
	if got[0].Sequence != 1 || got[1].Sequence != 1 || got[0].ID == got[1].ID {
		t.Errorf("letters %s of message %d and %s of message %d, want different ids for number 1 of both streams",
			got[0].ID, got[0].Sequence, got[1].ID, got[1].Sequence)
	}
}

func TestDeadLettersWithoutStream(t *testing.T) {
	t.Parallel()
	s, conn := open(t)
	_, js := s.raw(t)
	if err := js.DeleteStream(t.Context(), bus.StreamDeadLetter); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.DeadLetters(t.Context(), bus.DeadLetterQuery{}); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("DeadLetters = %v, want ErrNotFound", err)
	}
	if _, err := conn.ReplayDeadLetters(t.Context(), nil, true); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("ReplayDeadLetters = %v, want ErrNotFound", err)
	}
}

func FuzzParseDeadLetter(f *testing.F) {
	for _, seed := range [][9]string{
		{"id", "TRACES", "hindsight.v1.trace.a.~.message", "1", "5", "2026-01-02T03:04:05.678Z", "", "", "payload"},
		{"id", "TRACES", "s", "18446744073709551615", "-1", "2026-01-02T03:04:05+02:00", "12", "", ""},
		{"id", "TRACES", "s", "1", "1", "2026-01-02T03:04:05Z", "", "gzip", "\x1f\x8b\x08"},
		{"", "", "", "", "", "", "", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], seed[6], seed[7], []byte(seed[8]))
	}
	f.Fuzz(func(t *testing.T, id, stream, subject, sequence, attempts, at, cutFrom, encoding string, data []byte) {
		m := bus.Message{Data: data, Header: map[string][]string{
			"Hindsight-Letter-Id": {id}, "Hindsight-Origin-Stream": {stream}, "Hindsight-Origin-Subject": {subject},
			"Hindsight-Origin-Sequence": {sequence}, "Hindsight-Attempts": {attempts}, "Hindsight-Time": {at},
			"Hindsight-Cut-From": {cutFrom}, "Hindsight-Encoding": {encoding}, "Hindsight-Header-": {"x"}, "Hindsight-Header-a": nil,
		}}
		d, err := bus.ParseDeadLetter(m)
		if err != nil {
			return
		}
		if d.ID == "" || d.Stream == "" || d.Subject == "" || d.Time.Location() != time.UTC || d.Attempts < 0 || d.CutFrom < 0 {
			t.Errorf("accepted %+v", d)
		}
		if strconv.FormatUint(d.Sequence, 10) != strings.TrimLeft(sequence, "0+") && d.Sequence != 0 {
			t.Errorf("sequence %q became %d", sequence, d.Sequence)
		}
	})
}
