// Package importer translates files of foreign or recorded traces into trace events.
//
// It reads files and translates, nothing more: it never publishes, never talks to a store, and keeps nothing but the
// identities of what it has read, to recognise duplicates.
//
// It guarantees:
//
//   - The same line gives the same events, byte for byte, whatever stands around it: a subset of a file, or another
//     order of its lines, changes nothing. (A native event without a time is the one exception: it gets the time of the
//     import.)
//   - A line is translated as a whole or not at all. A task with a hole in it would teach something wrong, so that one
//     bad step makes its line a [Problem].
//   - A problem of one line never stops the file, and a problem of one file never stops the others. Whatever is not
//     translated is reported with its line and a reason that can be grouped by; nothing is dropped silently but blank
//     lines.
//   - Memory is bounded: one line at a time, at most [Options.MaxLineBytes] of it.
//
// # Files
//
// A file is gzip if it begins like gzip, else plain text; its name does not matter. "-" is standard input. A byte order
// mark and CRLF are accepted. A file that grows while it is read is read up to the size that it had when it was opened.
// A last line without a newline is taken if it is a whole JSON value, else reported as cut: a JSON object that is cut
// anywhere is never valid JSON, so that no half of a line passes for a whole one. Of a cut gzip file, all complete
// lines before the cut are delivered.
//
// # Trajectories
//
// The format `trajectory` has one task a line:
//
//	{source, run, trial, task_id, task, started_at?, outcome{success, reward, reason, duration_s?}, labels,
//	 steps[{type: message|tool_call, role?, content?, tool?, args?, result?, error?, by?, at?, latency_ms?}]}
//
// `task` (the private script of the simulated user) and `labels` (what people judged afterwards) are not even decoded:
// an agent never sees them, so the memory must not.
//
// A line becomes one `task_started`, one event a step, and one `task_finished`, numbered from 1. A call with
// `by: "user"` is what the simulated user did, so it becomes a message of the user that tells the call and its result.
// Roles other than user, assistant and system are mapped to the nearest one; an unknown role counts as assistant, since
// the words of a tool or of the environment must never be trusted as a user's; the role as it was given is kept beside
// it as `original_role`.
//
// Times are taken from the line; one without a zone is UTC. Where a line has none, they are made up from the line
// alone: 2000-01-01 + trial days + index of the step in seconds. Where only some are missing, each follows the step
// before it by a second, but no later than the next known time. Recorded times that run backwards are raised to the
// latest one before them, so that times never decrease within a task. The attribute `times` of `task_started` says which
// it was: recorded, partly_recorded or synthesised.
package importer
