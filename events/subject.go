package events

import (
	"errors"
	"fmt"
	"strings"
)

// Subjects of the stream TRACES and of the live view.
const (
	// TraceSubjects matches every trace event's subject.
	TraceSubjects = tracePrefix + ">"
	// LiveSubjects matches the live view: core NATS, published after the write, never stored.
	LiveSubjects = livePrefix + ">"

	tracePrefix = "hindsight.v1.trace."
	livePrefix  = "hindsight.v1.live."
	// noTeam stands for the absent team of a namespace, so that every subject has as many tokens.
	noTeam = "~"
)

// ErrSubject means that a subject is not one of a trace event, or that it and the envelope disagree.
var ErrSubject = errors.New("subject does not fit")

// Subject is where a trace event is published: `hindsight.v1.trace.<tenant>.<team>.<kind>`.
// The namespace and kind must be valid.
func Subject(namespace string, kind Kind) string { return tracePrefix + suffix(namespace, kind) }

// LiveSubject is where a stored event is shown to live views.
func LiveSubject(namespace string, kind Kind) string { return livePrefix + suffix(namespace, kind) }

func suffix(namespace string, kind Kind) string {
	return NamespaceTokens(namespace) + "." + string(kind)
}

// NamespaceTokens are the two tokens that stand for a namespace in every subject: `<tenant>.<team>`, the team being ~
// when the namespace has none. [ParseNamespaceTokens] reads them.
func NamespaceTokens(namespace string) string {
	tenant, team, found := strings.Cut(namespace, ".")
	if !found {
		team = noTeam
	}
	return tenant + "." + team
}

// ParseNamespaceTokens is the namespace of two tokens of a subject. The error is that of [ValidateNamespace].
func ParseNamespaceTokens(tenant, team string) (string, error) {
	namespace := tenant
	if team != noTeam {
		namespace += "." + team
	}
	if err := ValidateNamespace(namespace); err != nil {
		return "", err
	}
	return namespace, nil
}

// CheckSubject verifies that the subject an event arrived on is the one its envelope demands: permissions of the
// broker are given by subject, so an envelope must not be able to claim another namespace. The error is [ErrSubject].
func (e Event) CheckSubject(subject string) error {
	if want := Subject(e.Namespace, e.Kind); subject != want {
		return fmt.Errorf("%w: the event came on %q but its envelope (namespace %q, kind %q) belongs on %q",
			ErrSubject, subject, e.Namespace, e.Kind, want)
	}
	return nil
}

// MessageID is the id for the broker's de-duplication: namespace and event id, since the broker's window covers the
// whole stream and two namespaces may use the same event id.
func (e Event) MessageID() string { return e.Namespace + "/" + e.ID }
