package llm

import "encoding/json"

// Extract finds the answer in what a model said.
func Extract(said string, schema json.RawMessage) (json.RawMessage, error) {
	compiled, err := compile(schema)
	if err != nil {
		return nil, err
	}
	return extract(said, compiled, nil)
}
