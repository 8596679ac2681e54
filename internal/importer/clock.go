package importer

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

// Values of the attribute `times`.
const (
	timesRecorded = "recorded"
	timesPartly   = "partly_recorded"
	timesNone     = "synthesised"
)

const (
	// gap is how long after the step before it a step without a time is said to have been.
	gap = time.Second
	// maxTrialDays keeps made-up times in the past, however large a trial's number is (some are seeds).
	maxTrialDays = 9000
	// maxDuration bounds outcome.duration_s, in seconds, to what a time.Duration can hold.
	maxDuration = 9e9
)

// clock holds the times of a task's events: its start, each step, its end.
type clock struct {
	times  []time.Time
	origin string
}

// newClock finds the times of a line from the line alone. They never decrease.
func newClock(startedAt json.RawMessage, trial string, steps []trajectoryStep, duration float64) (clock, error) {
	started, err := decodeTime("started_at", startedAt)
	if err != nil {
		return clock{}, err
	}
	known := make([]time.Time, len(steps))
	count := 0
	for i, s := range steps {
		if known[i], err = decodeTime(stepField(i, "at"), s.At); err != nil {
			return clock{}, err
		}
		if !known[i].IsZero() {
			count++
		}
	}
	out := clock{origin: timesPartly}
	switch {
	case count == len(steps) && (count > 0 || !started.IsZero()):
		out.origin = timesRecorded
	case count == 0 && started.IsZero():
		out.origin = timesNone
	}
	filled := fill(known, firstTime(started, known, trial))
	start := started
	if len(filled) > 0 && (start.IsZero() || filled[0].Before(start)) {
		start = filled[0]
	}
	if start.IsZero() {
		start = syntheticStart(trial)
	}
	if started.IsZero() {
		started = start
	}
	out.times = append([]time.Time{start}, filled...)
	end := started.Add(time.Duration(min(max(duration, 0), maxDuration) * float64(time.Second))).Truncate(time.Millisecond)
	if last := out.times[len(out.times)-1]; end.Before(last) {
		end = last
	}
	out.times = append(out.times, end)
	return out, nil
}

// firstTime is the time of the first step when it has none of its own: the start, else so long before the first known
// time that every step between has its second, else made up.
func firstTime(started time.Time, known []time.Time, trial string) time.Time {
	for i, t := range known {
		switch {
		case t.IsZero():
			continue
		case !started.IsZero() && started.Before(t):
			return started
		default:
			return t.Add(-time.Duration(i) * gap)
		}
	}
	if !started.IsZero() {
		return started
	}
	return syntheticStart(trial)
}

// fill gives every step a time, such that none is before an earlier one.
func fill(known []time.Time, first time.Time) []time.Time {
	out := make([]time.Time, len(known))
	next := nextKnown(known)
	for i, t := range known {
		if t.IsZero() {
			t = first
			if i > 0 {
				t = out[i-1].Add(gap)
			}
			if !next[i].IsZero() && next[i].Before(t) {
				t = next[i]
			}
		}
		if i > 0 && t.Before(out[i-1]) {
			t = out[i-1]
		}
		out[i] = t
	}
	return out
}

// nextKnown gives for each step the next time that is known at or after it; zero when there is none.
func nextKnown(known []time.Time) []time.Time {
	out := make([]time.Time, len(known))
	var next time.Time
	for i := len(known) - 1; i >= 0; i-- {
		if !known[i].IsZero() {
			next = known[i]
		}
		out[i] = next
	}
	return out
}

// syntheticStart is 2000-01-01 and as many days as the trial's number; a trial that is no number counts as 0.
func syntheticStart(trial string) time.Time {
	days, err := strconv.ParseUint(trial, 10, 63)
	if err != nil {
		days = 0
	}
	return time.Date(2000, time.January, 1+int(days%maxTrialDays), 0, 0, 0, 0, time.UTC)
}

// decodeTime reads a time; absent, null and empty give the zero time.
func decodeTime(field string, raw json.RawMessage) (time.Time, error) {
	text, err := decodeText(field, raw)
	if err != nil || text == "" {
		return time.Time{}, err
	}
	t, err := events.ParseTime(text)
	if err != nil {
		return time.Time{}, problemf(ReasonBadTime, "%s: %w", field, err)
	}
	return t, nil
}
