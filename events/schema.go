package events

import _ "embed" // for schema.json

//go:embed schema.json
var schema string

// JSONSchema returns the JSON Schema (draft 2020-12) of the envelope and of each kind's data. It is never stricter than
// [Event.Validate]; what a schema cannot say (bytes, depth, the receiver's clock) stands in its description.
func JSONSchema() []byte { return []byte(schema) }
