package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
)

// leasePrefix begins the names of the tables that serve as leases, each followed by its generation.
const leasePrefix = "schema_migrations_lock_"

var errLeaseLost = errors.New("lease of the schema lost")

// schemaLease lets one program at a time change the schema. ClickHouse has no locks, but CREATE TABLE without IF NOT EXISTS
// is atomic: the holder is who created the table of the highest generation. It adds a row to it now and then as a
// sign of life, and a last one when it is done. When it is done or silent for too long, the next generation may be
// created. The newest table stays for ever, so that a generation is never used twice.
//
// On a cluster this holds between programs that talk to the same server; statements can be repeated, so that two
// that do not can do no harm to each other.
type schemaLease struct {
	m          *migrator
	generation uint64
	stop       context.CancelFunc
	beating    sync.WaitGroup
}

func leaseTable(generation uint64) string { return leasePrefix + strconv.FormatUint(generation, 10) }

// acquire waits for the lease.
func (m *migrator) acquire(ctx context.Context) (*schemaLease, error) {
	told := false
	for {
		newest, older, err := m.leases(ctx)
		if err != nil {
			return nil, err
		}
		held, err := m.leaseHeld(ctx, newest)
		if err != nil {
			return nil, err
		}
		if held {
			if !told {
				m.logger.InfoContext(ctx, "another program migrates the schema, waiting for it")
				told = true
			}
			if err := sleep(ctx, m.expiry/50); err != nil {
				return nil, fmt.Errorf("wait for another program to migrate the schema: %w", err)
			}
			continue
		}
		won, err := m.createLease(ctx, newest+1)
		if err != nil {
			return nil, err
		}
		if !won {
			continue
		}
		for _, generation := range append(older, newest) {
			if err := m.dropLease(ctx, generation); err != nil {
				return nil, err
			}
		}
		l := &schemaLease{m: m, generation: newest + 1}
		l.beat(ctx)
		return l, nil
	}
}

// leases returns the highest generation, 0 if there is none, and the others.
func (m *migrator) leases(ctx context.Context) (newest uint64, older []uint64, err error) {
	rows, err := m.admin.Query(ctx, "SELECT name FROM system.tables WHERE database = ? AND startsWith(name, ?)", m.database, leasePrefix)
	if err != nil {
		return 0, nil, translate(ctx, "look for leases of the schema", err)
	}
	defer rows.Close() //nolint:errcheck // Err below has told what went wrong.
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return 0, nil, translate(ctx, "look for leases of the schema", err)
		}
		generation, err := strconv.ParseUint(strings.TrimPrefix(name, leasePrefix), 10, 64)
		if err != nil {
			continue // Not one of ours.
		}
		if generation > newest {
			newest, generation = generation, newest
		}
		if generation > 0 {
			older = append(older, generation)
		}
	}
	return newest, older, translate(ctx, "look for leases of the schema", rows.Err())
}

// leaseHeld reports whether the holder of a generation is alive and not done, by the server's clock.
func (m *migrator) leaseHeld(ctx context.Context, generation uint64) (bool, error) {
	if generation == 0 {
		return false, nil
	}
	var held bool
	err := m.conn.QueryRow(ctx, `SELECT NOT maxOrDefault(released) AND greatest(maxOrDefault(at), toDateTime64(
			(SELECT max(metadata_modification_time) FROM system.tables WHERE database = ? AND name = ?), 3, 'UTC'
		)) > now64(3, 'UTC') - toIntervalMillisecond(?) FROM `+leaseTable(generation),
		m.database, leaseTable(generation), m.expiry.Milliseconds()).Scan(&held)
	if code, _ := exception(err); code == codeUnknownTable {
		return true, nil // It was dropped meanwhile, so there is a newer one: look again.
	}
	return held, translate(ctx, "look at the lease of the schema", err)
}

// createLease tries to become the holder of a generation.
func (m *migrator) createLease(ctx context.Context, generation uint64) (bool, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	holder := fmt.Sprintf("Lease of the schema, held by process %d on %s", os.Getpid(), host)
	err = m.conn.Exec(ctx, `CREATE TABLE `+leaseTable(generation)+`
		(at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC'), released Bool) ENGINE = MergeTree ORDER BY at COMMENT ?`, holder)
	if code, _ := exception(err); code == codeTableExists {
		return false, nil
	}
	if err != nil {
		return false, translate(ctx, "create the lease of the schema", err)
	}
	// If this generation was used and dropped while we were about to create it, a higher one exists.
	newest, _, err := m.leases(ctx)
	if err != nil {
		return false, err
	}
	if newest != generation {
		return false, m.dropLease(ctx, generation)
	}
	return true, nil
}

func (m *migrator) dropLease(ctx context.Context, generation uint64) error {
	if generation == 0 {
		return nil
	}
	return translate(ctx, "drop an old lease of the schema", m.conn.Exec(ctx, "DROP TABLE IF EXISTS "+leaseTable(generation)))
}

// beat gives signs of life until release.
func (l *schemaLease) beat(ctx context.Context) {
	ctx, l.stop = context.WithCancel(ctx)
	l.beating.Go(func() {
		for {
			if err := l.sign(ctx, false); err != nil && ctx.Err() == nil {
				l.m.logger.WarnContext(ctx, "sign of life for the lease of the schema failed", slog.Any("error", err))
			}
			if sleep(ctx, l.m.expiry/5) != nil {
				return
			}
		}
	})
}

func (l *schemaLease) sign(ctx context.Context, released bool) error {
	err := l.m.conn.Exec(syncInsert(ctx), "INSERT INTO "+leaseTable(l.generation)+" (released) VALUES (?)", released)
	return translate(ctx, "sign the lease of the schema", err)
}

// check fails with errLeaseLost when another program took over.
func (l *schemaLease) check(ctx context.Context) error {
	newest, _, err := l.m.leases(ctx)
	if err != nil {
		return err
	}
	if newest != l.generation {
		return errLeaseLost
	}
	return nil
}

// release ends the lease. If it cannot say so, the others wait until the lease expires.
// It is done even when the migration was cancelled.
func (l *schemaLease) release(ctx context.Context) error {
	l.stop()
	l.beating.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	if err := l.check(ctx); errors.Is(err, errLeaseLost) {
		return nil // It is another's business now.
	}
	return l.sign(ctx, true)
}
