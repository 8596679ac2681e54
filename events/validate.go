package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of one event. They are part of the wire contract.
const (
	// MaxEventBytes is the largest encoded event, 1 MB. The broker's own limit is 1 MiB for a message *with* its
	// headers, so that an event of exactly 1 MiB could never be published.
	MaxEventBytes = 1_000_000
	// MaxIDBytes bounds the id of an event, in bytes.
	MaxIDBytes = 128
	// MaxNameBytes bounds the other ids of the envelope, in bytes: recorded runs have goals and agents of over 200.
	MaxNameBytes = 512
	// MaxTextBytes is where a long text (a result, a message) is cut with `…[cut N bytes]`.
	MaxTextBytes = 64 << 10
	// MaxFuture is how far ahead of the receiver's clock an event's time may be.
	MaxFuture = 24 * time.Hour
	// MaxDepth bounds the nesting of the data object.
	MaxDepth = 64
)

// Errors of validation; test with errors.Is. Both carry a sentence that names the field and what is allowed.
var (
	// ErrInvalid means that an event breaks the contract and can never be stored as it is.
	ErrInvalid = errors.New("invalid event")
	// ErrTooLarge means that an event is over [MaxEventBytes] even after its long texts were cut.
	ErrTooLarge = errors.New("event too large")
)

// maxTokenBytes bounds a kind and each part of a namespace, which are tokens of subjects.
const maxTokenBytes = 64

// ValidateNamespace checks a namespace: `tenant` or `tenant.team`, each 1 to 64 of a-z, 0-9, _ and -.
func ValidateNamespace(ns string) error {
	tenant, team, found := strings.Cut(ns, ".")
	if !isToken(tenant, true) || found && !isToken(team, true) {
		return fmt.Errorf("%w: namespace %q: it must be `tenant` or `tenant.team`, each 1 to 64 characters of a-z, 0-9, _ and -",
			ErrInvalid, ns)
	}
	return nil
}

// isToken reports whether s is 1 to 64 of a-z, 0-9 and _, and of - where dash says so.
func isToken(s string, dash bool) bool {
	if s == "" || len(s) > maxTokenBytes {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLowerLetter(c) && !isDigit(c) && c != '_' && (c != '-' || !dash) {
			return false
		}
	}
	return true
}

func isLowerLetter(c byte) bool { return c >= 'a' && c <= 'z' }

// Validate checks the event against the contract; now is the receiver's clock. The error is [ErrInvalid].
func (e Event) Validate(now time.Time) error {
	if err := e.validateEnvelope(now); err != nil {
		return err
	}
	return validateData(e)
}

// validateEnvelope checks everything but the data.
func (e Event) validateEnvelope(now time.Time) error {
	if err := ValidateNamespace(e.Namespace); err != nil {
		return err
	}
	for _, f := range []struct {
		name, value string
		limit       int
		required    bool
	}{
		{"id", e.ID, MaxIDBytes, true},
		{"agent_id", e.AgentID, MaxNameBytes, true},
		{"session_id", e.SessionID, MaxNameBytes, true},
		{"task_id", e.TaskID, MaxNameBytes, true},
		{"user_id", e.UserID, MaxNameBytes, false},
		{"goal_id", e.GoalID, MaxNameBytes, false},
	} {
		if err := validateID(f.name, f.value, f.limit, f.required); err != nil {
			return err
		}
	}
	// The broker trims the header that carries the message id: "a" and "a " would be one event to it.
	if strings.TrimSpace(e.ID) != e.ID {
		return fmt.Errorf("%w: id %q begins or ends with white space", ErrInvalid, e.ID)
	}
	if !isToken(string(e.Kind), false) || !isLowerLetter(e.Kind[0]) {
		return fmt.Errorf("%w: kind %q: it must be 1 to 64 characters of a-z, 0-9 and _, beginning with a letter", ErrInvalid, e.Kind)
	}
	if e.Seq < 0 {
		return fmt.Errorf("%w: seq %d: it must not be negative", ErrInvalid, e.Seq)
	}
	if err := validateTime(e.Time, now); err != nil {
		return err
	}
	return validateExtra(e.Extra)
}

// validateExtra keeps unknown fields from spoiling the envelope: they may neither shadow a known field nor be no JSON.
func validateExtra(extra map[string]json.RawMessage) error {
	if len(extra) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		switch value := extra[name]; {
		case slices.Contains(wireFields(), name):
			return fmt.Errorf("%w: extra field %q has the name of a field of the envelope", ErrInvalid, name)
		case !json.Valid(value):
			return fmt.Errorf("%w: extra field %q is not JSON", ErrInvalid, name)
		case depth(value) > MaxDepth:
			return fmt.Errorf("%w: extra field %q is nested deeper than %d levels", ErrInvalid, name, MaxDepth)
		}
	}
	return nil
}

func validateID(name, value string, limit int, required bool) error {
	switch {
	case value == "" && required:
		return fmt.Errorf("%w: %s is missing", ErrInvalid, name)
	case len(value) > limit:
		return fmt.Errorf("%w: %s has %d bytes: at most %d are allowed", ErrInvalid, name, len(value), limit)
	case !utf8.ValidString(value):
		return fmt.Errorf("%w: %s is not valid UTF-8", ErrInvalid, name)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%w: %s %q has control characters", ErrInvalid, name, value)
	}
	return nil
}

func validateTime(t, now time.Time) error {
	switch {
	case t.IsZero():
		return fmt.Errorf("%w: time is missing", ErrInvalid)
	case t.Before(time.Unix(0, 0)):
		return fmt.Errorf("%w: time %s is before 1970", ErrInvalid, t.UTC().Format(TimeFormat))
	case t.After(now.Add(MaxFuture)):
		return fmt.Errorf("%w: time %s is more than %s in the future (the clock here says %s): check the producer's clock",
			ErrInvalid, t.UTC().Format(TimeFormat), MaxFuture, now.UTC().Format(TimeFormat))
	}
	return nil
}

func validateData(e Event) error {
	if len(e.Data) == 0 {
		e.Data = json.RawMessage("{}") // as it will be on the wire
	}
	if !json.Valid(e.Data) {
		return fmt.Errorf("%w: data is not a JSON object", ErrInvalid)
	}
	if err := validateShape(e.Data); err != nil {
		return err
	}
	return validateKind(e)
}

// validateShape checks that valid JSON is an object and not nested too deeply.
func validateShape(data json.RawMessage) error {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return fmt.Errorf("%w: data is not a JSON object", ErrInvalid)
	}
	if depth(data) > MaxDepth {
		return fmt.Errorf("%w: data is nested deeper than %d levels", ErrInvalid, MaxDepth)
	}
	return nil
}

// validateKind checks data, a JSON object, against its kind.
func validateKind(e Event) error {
	switch e.Kind {
	case KindTaskStarted:
		_, err := ViewData[TaskStarted](e)
		return err
	case KindMessage:
		return validateMessage(e)
	case KindStepFinished:
		return validateStep(e)
	case KindTaskFinished:
		return validateFinish(e)
	case KindFeedback:
		return validateFeedback(e)
	case KindItemWritten, KindItemChanged, KindRecallServed:
		return nil
	default:
		return nil
	}
}

func validateMessage(e Event) error {
	m, err := ViewData[Message](e)
	if err != nil {
		return err
	}
	return oneOf("data.role", m.Role, RoleUser, RoleAssistant, RoleSystem)
}

func validateStep(e Event) error {
	s, err := ViewData[StepFinished](e)
	if err != nil {
		return err
	}
	if s.Tool == "" {
		return fmt.Errorf("%w: data.tool is missing", ErrInvalid)
	}
	if p := strings.TrimSpace(string(s.Parameters)); p != "" && p != "null" && p[0] != '{' {
		return fmt.Errorf("%w: data.parameters is not a JSON object", ErrInvalid)
	}
	if s.Step < 0 {
		return fmt.Errorf("%w: data.step %d: it must not be negative", ErrInvalid, s.Step)
	}
	if s.ExecutionTimeMS < 0 {
		return fmt.Errorf("%w: data.execution_time_ms %d: it must not be negative", ErrInvalid, s.ExecutionTimeMS)
	}
	if err := oneOf("data.actor", s.Actor, "", ActorAgent, ActorUser); err != nil {
		return err
	}
	return oneOf("data.status", string(s.Status), string(StatusSuccess), string(StatusFailure))
}

func validateFinish(e Event) error {
	f, err := ViewData[TaskFinished](e)
	if err != nil {
		return err
	}
	if err := oneOf("data.confirmed_by", f.ConfirmedBy, "", ConfirmedByUser, ConfirmedBySystem, ConfirmedByAgent); err != nil {
		return err
	}
	return oneOf("data.status", string(f.Status), string(StatusSuccess), string(StatusFailure), string(StatusPartial),
		string(StatusCancelled), string(StatusUnknown))
}

func validateFeedback(e Event) error {
	f, err := ViewData[Feedback](e)
	if err != nil {
		return err
	}
	return oneOf("data.kind", f.Kind, FeedbackCorrection, FeedbackRating, FeedbackApproval, FeedbackRejection)
}

func oneOf(field, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%w: %s %q: it must be one of %s", ErrInvalid, field, value,
		strings.TrimPrefix(strings.Join(allowed, ", "), ", "))
}

// depth is the deepest nesting of arrays and objects in valid JSON.
func depth(raw []byte) int {
	deepest, level, inString := 0, 0, false
	escaped := false
	for _, c := range raw {
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}
