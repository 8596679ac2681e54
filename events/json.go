package events

import (
	"encoding/json"

	fast "github.com/segmentio/encoding/json"
)

// unmarshal is json.Unmarshal by a decoder that takes a third of the time: an event is decoded several times on its
// way. What it refuses is given to the standard library, which has the last word and whose errors do not repeat the
// input, where secrets may be.
func unmarshal(raw []byte, v any) error {
	if fast.Unmarshal(raw, v) == nil {
		return nil
	}
	return json.Unmarshal(raw, v) //nolint:wrapcheck // A drop-in for json.Unmarshal.
}
