package memory

import "fmt"

// ReflectionRequest asks for one revision of a task to be reflected. It is the message of the stream REFLECT.
type ReflectionRequest struct {
	Namespace string `json:"namespace"`
	TaskID    string `json:"task_id"`
	Revision  uint64 `json:"revision"`
	// Closed is false for a provisional reflection of a task that still runs.
	Closed bool `json:"closed"`
}

// MessageID is the id for the broker's de-duplication: one message a revision, whoever sends it.
func (r ReflectionRequest) MessageID() string {
	return fmt.Sprintf("%s/%s/%d", r.Namespace, r.TaskID, r.Revision)
}
