package ingest

import "time"

// MaxLive is how many live tasks without anything urgent are read in one look.
const MaxLive = maxLive

// SetOverlap shortens how far back each look reaches, since a test can't wait for a minute.
func (s *Sweeper) SetOverlap(d time.Duration) { s.overlap = d }

// SetPatience shortens how long a reflection is waited for that never comes.
func (s *Sweeper) SetPatience(d time.Duration) { s.patience = d }

// SetSettling bounds how many unsettled tasks are looked at together, and for how long in one look.
func (s *Sweeper) SetSettling(chunk int, atMost time.Duration) {
	s.settleChunk, s.settleFor = chunk, atMost
}
