// Package examples holds the files of this folder for programs that show or measure Hindsight with them.
package examples

import _ "embed" // the file

// Shop is shop.jsonl: recorded runs of a small shop's agent, to be imported.
//
//go:embed shop.jsonl
var Shop []byte
