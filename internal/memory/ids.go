package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// HashID is the id of something that is made of parts: 32 hexadecimal digits, the same for the same parts on every
// machine. No part can be mistaken for two, since each carries its length.
func HashID(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%d:%s,", len(p), p)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:16])
}

// SnapshotID names the snapshot of one call. It stays when late events renumber steps.
func SnapshotID(namespace, taskID, callID, eventID string) string {
	if callID != "" {
		return HashID("snapshot", namespace, taskID, "call", callID)
	}
	return HashID("snapshot", namespace, taskID, "event", eventID)
}

// MemoryID names the memory at one place of one source event, counted from 0.
func MemoryID(namespace, eventID string, ordinal int) string { //nolint:revive // A memory is one of the words of the domain.
	return HashID("memory", namespace, eventID, strconv.Itoa(ordinal))
}

// WrittenID names an item that a tool asked to store, by its canonical arguments.
func WrittenID(namespace, canonicalArguments string) string {
	return HashID("written", namespace, canonicalArguments)
}

// TextHash names a text that is embedded.
func TextHash(text string) string { return HashID("text", text) }
