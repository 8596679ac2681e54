package schema

import (
	"bytes"
	_ "embed" // The JSON Schemas are files.
)

//go:embed json/snapshot.schema.json
var snapshotJSON []byte

//go:embed json/memory.schema.json
var memoryJSON []byte

//go:embed json/rule.schema.json
var ruleJSON []byte

// SnapshotJSON returns the JSON Schema (draft 2020-12) of a decision snapshot.
func SnapshotJSON() []byte { return bytes.Clone(snapshotJSON) }

// MemoryJSON returns the JSON Schema (draft 2020-12) of a structured memory.
func MemoryJSON() []byte { return bytes.Clone(memoryJSON) }

// RuleJSON returns the JSON Schema (draft 2020-12) of a rule.
func RuleJSON() []byte { return bytes.Clone(ruleJSON) }
