// Package chaos tests the product as operators run it: the real programs, as one process or as many, against real
// engines, while processes are killed at random moments.
//
// It has no code but tests. What they hold the product to: whichever way the programs are started, and whatever is killed
// while they work, the same tasks lead to the same record and the same answers; nothing is lost, and nothing is there twice.
//
// Every test publishes made-up tasks, and recorded ones beside them where HINDSIGHT_TEST_DATA names a folder of them. These
// variables choose how much is done; `make test-chaos` sets them to the larger sizes:
//
//	HINDSIGHT_TEST_CHAOS_SEEDS   seeds of the random moments, separated by commas (1)
//	HINDSIGHT_TEST_CHAOS_TASKS   tasks a run (60)
//	HINDSIGHT_TEST_CHAOS_OUTAGE  how long Milvus is away under load (0s: it is not)
package chaos
