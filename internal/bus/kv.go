package bus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// PutWorking stores the working memory of a live task. It is gone once it has
// not been written for StreamConfig.WorkingTTL. Errors: [ErrFull],
// [ErrTooLarge], [ErrUnavailable].
func (c *Conn) PutWorking(ctx context.Context, namespace, taskID string, value []byte) error {
	return c.put(ctx, bucketWorking, workingKey(namespace, taskID), value)
}

// GetWorking reads the working memory of a task; [ErrNotFound] when there is
// none.
func (c *Conn) GetWorking(ctx context.Context, namespace, taskID string) ([]byte, error) {
	return c.get(ctx, bucketWorking, workingKey(namespace, taskID))
}

// DeleteWorking erases the working memory of a task. That there is none is no
// error.
func (c *Conn) DeleteWorking(ctx context.Context, namespace, taskID string) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	kv, err := c.bucket(ctx, bucketWorking)
	if err == nil {
		err = kv.Purge(ctx, workingKey(namespace, taskID))
	}
	if err != nil {
		return fmt.Errorf("delete working memory: %w", translate(err))
	}
	return nil
}

// SaveState stores a service's bookmark under key (letters, digits, -, _, . and
// /; not starting with "lease."), for the next start.
func (c *Conn) SaveState(ctx context.Context, key string, value []byte) error {
	return c.put(ctx, bucketState, key, value)
}

// LoadState reads what SaveState stored; [ErrNotFound] when there is nothing.
func (c *Conn) LoadState(ctx context.Context, key string) ([]byte, error) {
	return c.get(ctx, bucketState, key)
}

// workingKey hides names that a key could not hold, or should not show.
func workingKey(namespace, taskID string) string {
	sum := sha256.Sum256([]byte(namespace + "\x00" + taskID))
	return hex.EncodeToString(sum[:])
}

func (c *Conn) put(ctx context.Context, bucket, key string, value []byte) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	kv, err := c.bucket(ctx, bucket)
	if err == nil {
		_, err = kv.Put(ctx, key, value)
	}
	if err != nil {
		return fmt.Errorf("write %s/%s: %w", bucket, key, translate(err))
	}
	return nil
}

func (c *Conn) get(ctx context.Context, bucket, key string) ([]byte, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	kv, err := c.bucket(ctx, bucket)
	var entry jetstream.KeyValueEntry
	if err == nil {
		entry, err = kv.Get(ctx, key)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s/%s: %w", bucket, key, translate(err))
	}
	return entry.Value(), nil
}

// bucket opens a bucket, and remembers it: a handle is only a name, and stays
// good when the bucket is made anew.
func (c *Conn) bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	c.mu.Lock()
	kv := c.open[name]
	c.mu.Unlock()
	if kv != nil {
		return kv, nil
	}
	kv, err := c.js.KeyValue(ctx, name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[name] = kv
	return kv, nil
}
