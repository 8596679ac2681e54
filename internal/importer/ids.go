package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hindsight-memory/hindsight/events"
)

// hashID names a list of texts: the first 128 bits of a SHA-256, in hexadecimal. Each text comes with its length,
// because joining with a separator would give ("a/b", "c") and ("a", "b/c") the same id.
func hashID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		// Writing to a hash never fails.
		_, _ = io.WriteString(h, strconv.Itoa(len(p))+":"+p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// limitID makes a text fit for an id of the envelope. A text that fits is kept as it is. Otherwise control characters
// become _, the end is cut, and a hash of the whole text follows, so that two long texts with the same beginning differ.
func limitID(s string) string {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if len(s) <= events.MaxNameBytes && !strings.ContainsFunc(s, control) {
		return s
	}
	suffix := "~" + hashID(s)[:16]
	out := strings.Map(func(r rune) rune {
		if control(r) {
			return '_'
		}
		return r
	}, s)
	end := min(len(out), events.MaxNameBytes-len(suffix))
	for end > 0 && end < len(out) && !utf8.RuneStart(out[end]) {
		end--
	}
	return out[:end] + suffix
}

// canonicalNumber writes a JSON number such that 0, -0, 0.0 and 0e1 are the same: exporters that go through a table
// write whole numbers as decimals.
func canonicalNumber(n json.Number) string {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return strconv.FormatInt(i, 10)
	}
	const exact = 1 << 53 // Whole numbers up to here are exact in a float64.
	if f, err := n.Float64(); err == nil && f > -exact && f < exact && f == math.Trunc(f) {
		return strconv.FormatInt(int64(f), 10)
	}
	return n.String()
}
