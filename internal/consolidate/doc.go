// Package consolidate looks after what is remembered: it merges lessons that say the same, draws rules from what recurs,
// and sweeps out what nobody needs.
//
// Each job is a function of the record, a clock and a lease. One process works at a time, one job at a time. What a job
// writes is one run for each namespace: its rows carry the id of the run and count from the moment the run is committed,
// by compare-and-set on the key of the lease. A job that is killed, fails or loses its lease leaves nothing that anybody
// sees, and the next one starts afresh. Running a job again over the same record changes nothing.
//
// It never asks a model, never deletes a row, and never changes what a person has decided: versions that a person wrote,
// pinned rules and relations that a person removed stay as they are.
package consolidate
