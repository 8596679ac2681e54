package memory

import "fmt"

// ReflectionRequest asks for one revision of a task to be reflected. It is the message of the stream REFLECT.
type ReflectionRequest struct {
	Namespace string `json:"namespace"`
	TaskID    string `json:"task_id"`
	Revision  uint64 `json:"revision"`
	// Closed is false for a provisional reflection of a task that still runs.
	Closed bool `json:"closed"`
	// Settle is set when the revision was reflected already, and is to be again because its basis has changed: it names the
	// new basis and the reflection that rests on another.
	Settle string `json:"settle,omitempty"`
}

// MessageID is the id for the broker's de-duplication: one message a revision, and one for each time that it is to be
// settled, whoever sends it.
func (r ReflectionRequest) MessageID() string {
	id := fmt.Sprintf("%s/%s/%d", r.Namespace, r.TaskID, r.Revision)
	if r.Settle != "" {
		id += "/" + r.Settle
	}
	return id
}
