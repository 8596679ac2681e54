// Package events is the public contract between agents and Hindsight: the trace events that an agent
// publishes, their validation, their JSON Schema, the subjects they travel on, and a small publisher.
//
// An event is one immutable fact about a running task. The package guarantees that the same event always has
// the same bytes ([Event.MarshalJSON] is deterministic), that fields it does not know survive a round trip,
// and that a secret it recognises never leaves the process ([Prepare] masks before anything is published).
//
// It never talks to a database and never imports anything else of Hindsight, so that another program can
// depend on it alone.
package events
