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

// peek is unmarshal without copies: the texts and raw values in v are those in raw. It is for a v that is looked at and
// dropped while raw stays as it is.
func peek(raw []byte, v any) error {
	if rest, err := fast.Parse(raw, v, fast.ZeroCopy); err == nil && len(rest) == 0 {
		return nil
	}
	return json.Unmarshal(raw, v) //nolint:wrapcheck // A drop-in for json.Unmarshal.
}
