package importer

import (
	"encoding/json"

	"github.com/hindsight-memory/hindsight/events"
)

// eventsFormat reads recorded events: one native envelope a line, or one CloudEvent in structured mode.
//
// An event without an id gets a hash of its line, so that importing the file twice changes nothing.
type eventsFormat struct {
	namespace string
	// override puts every event into namespace, wherever it comes from.
	override bool
}

func (eventsFormat) name() string { return FormatEvents }

func (eventsFormat) describe() string {
	return "one event a line: id, namespace, task_id, time, kind, data; or a CloudEvent"
}

func (eventsFormat) detects(fields map[string]json.RawMessage) bool {
	_, foreign := fields["specversion"]
	_, kind := fields["kind"]
	_, data := fields["data"]
	_, task := fields["task_id"]
	return foreign || kind && (data || task) || data && task
}

// identity: an event's id is unique in its namespace.
func (eventsFormat) identity(evs []events.Event) string {
	return hashID(evs[0].Namespace, evs[0].ID)
}

func (f eventsFormat) mapLine(raw []byte) ([]events.Event, error) {
	if err := checkObject("the line", raw); err != nil {
		return nil, err
	}
	e, err := events.Decode(nil, raw)
	if err != nil {
		if !json.Valid(raw) {
			return nil, problemf(ReasonInvalidJSON, "the line is not valid JSON: %w", err)
		}
		return nil, problemf(ReasonInvalidEvent, "%w", err)
	}
	switch {
	case f.override || e.Namespace == "":
		e.Namespace = f.namespace
	case f.namespace != "" && e.Namespace != f.namespace:
		return nil, problemf(ReasonNamespaceMismatch,
			"the event is of namespace %q, but the import is into %q: import it into its own, or override the namespace",
			e.Namespace, f.namespace)
	}
	if e.Namespace == "" {
		return nil, problemf(ReasonMissingNamespace, "the event does not say whose memory it is: give a namespace")
	}
	if e.ID == "" {
		e.ID = hashID(string(raw))
	}
	return []events.Event{e}, nil
}
