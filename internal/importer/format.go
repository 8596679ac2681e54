package importer

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

// FormatAuto recognises the format of each file by its content.
const FormatAuto = "auto"

// Names of the formats.
const (
	FormatTrajectory = "trajectory"
	FormatEvents     = "events"
	FormatMemories   = "memories"
)

// format is one kind of line.
type format interface {
	name() string
	// describe says in a few words what a line looks like, for the message about an unknown format.
	describe() string
	// detects reports whether a line with these fields is of the format. A broken line of it should pass too.
	detects(fields map[string]json.RawMessage) bool
	// mapLine translates one line: valid UTF-8, not blank, of any other content. The events are not prepared yet, and
	// belong to one task. An error carries its reason.
	mapLine(line []byte) ([]events.Event, error)
	// identity is what makes two lines the same, given the prepared events of one.
	identity(evs []events.Event) string
}

// formats lists every format in the order in which it is asked whether it knows a line.
func formats(o Options) []format {
	return []format{
		trajectoryFormat{namespace: o.Namespace},
		eventsFormat{namespace: o.Namespace, override: o.OverrideNamespace},
		memoriesFormat{namespace: o.Namespace, now: o.Now},
	}
}

// Formats lists the names that [Options.Format] accepts besides [FormatAuto].
func Formats() []string {
	known := formats(Options{})
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name()
	}
	return names
}

func formatByName(o Options) (format, error) {
	known := formats(o)
	for _, f := range known {
		if f.name() == o.Format {
			return f, nil
		}
	}
	return nil, fmt.Errorf("format %q is unknown: give %s or one of %s", o.Format, FormatAuto, strings.Join(Formats(), ", "))
}

// describeFormats lists the formats for a person.
func describeFormats(known []format) string {
	parts := make([]string, len(known))
	for i, f := range known {
		parts[i] = f.name() + " (" + f.describe() + ")"
	}
	return strings.Join(parts, ", ")
}

// prepare takes the events of one line through the same edge step as every other door.
func prepare(evs []events.Event, now time.Time) ([]events.Event, [][]byte, error) {
	prepared := make([]events.Event, len(evs))
	encoded := make([][]byte, len(evs))
	for i, e := range evs {
		p, raw, err := events.Prepare(e, now)
		if err != nil {
			return nil, nil, fmt.Errorf("%s with seq %d: %w", e.Kind, e.Seq, err)
		}
		prepared[i], encoded[i] = p, raw
	}
	return prepared, encoded, nil
}

// detect tells the format of a line; nil means that it is of none.
func detect(known []format, text []byte) format {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return nil
	}
	for _, f := range known {
		if f.detects(fields) {
			return f
		}
	}
	return nil
}
