package engine

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// decodeBody returns the body as the client meant it: without its content
// encoding, and, with decompress=1, without ClickHouse's block compression.
func decodeBody(r *http.Request, blocks bool) (io.Reader, error) {
	var body io.Reader = r.Body
	var err error
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		body, err = gzip.NewReader(body)
	case "deflate":
		body, err = zlib.NewReader(body)
	case "br":
		body = brotli.NewReader(body)
	case "lz4":
		body = lz4.NewReader(body)
	case "zstd":
		var d *zstd.Decoder
		// One goroutine less, and bounded memory: a frame may claim any window.
		d, err = zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		body = d
	default:
		return nil, exceptionf(48, "NOT_IMPLEMENTED", "Content-Encoding %q is not known: use gzip, deflate, br, lz4 or zstd", encoding)
	}
	if err != nil {
		return nil, exceptionf(354, "CANNOT_DECOMPRESS", "Cannot decompress the request: %v", err)
	}
	if blocks {
		body = blockReader{compress.NewReader(body)}
	}
	return body, nil
}

// blockReader gives the end of the blocks as plain io.EOF, which is what the
// readers of the standard library compare with.
type blockReader struct{ r io.Reader }

func (b blockReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// acceptedEncoding picks a content encoding for the answer, "" for none.
func acceptedEncoding(accept string) string {
	for part := range strings.SplitSeq(accept, ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.ReplaceAll(quality, " ", "") == "q=0" {
			continue
		}
		switch name = strings.ToLower(strings.TrimSpace(name)); name {
		case "gzip", "zstd", "lz4", "deflate":
			return name
		}
	}
	return ""
}

func newEncoder(encoding string, w io.Writer) (io.WriteCloser, error) {
	switch encoding {
	case "gzip":
		return gzip.NewWriterLevel(w, gzip.BestSpeed)
	case "deflate":
		return zlib.NewWriterLevel(w, zlib.BestSpeed)
	case "lz4":
		return lz4.NewWriter(w), nil
	case "zstd":
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	}
	return nil, fmt.Errorf("unknown content encoding %q", encoding)
}

// blockCompressor writes ClickHouse's own compression: blocks, each with a
// checksum, method and sizes.
type blockCompressor struct {
	w      io.Writer
	enc    *compress.Writer
	buffer bytes.Buffer
}

// blockSize is how many bytes go into one compressed block; it is the
// engine's max_compress_block_size.
const blockSize = 1 << 20

func newBlockCompressor(method string, w io.Writer) (*blockCompressor, error) {
	var m compress.Method
	switch method {
	case "LZ4", "LZ4HC":
		m = compress.LZ4
	case "ZSTD":
		m = compress.ZSTD
	case "NONE":
		m = compress.None
	default:
		return nil, exceptionf(48, "NOT_IMPLEMENTED", "network_compression_method %q is not known: use LZ4, ZSTD or NONE", method)
	}
	return &blockCompressor{w: w, enc: compress.NewWriter(0, m)}, nil
}

func (b *blockCompressor) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part := p[:min(len(p), blockSize-b.buffer.Len())]
		b.buffer.Write(part)
		p = p[len(part):]
		if b.buffer.Len() == blockSize {
			if err := b.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (b *blockCompressor) flush() error {
	if b.buffer.Len() == 0 {
		return nil
	}
	if err := b.enc.Compress(b.buffer.Bytes()); err != nil {
		return fmt.Errorf("compress result: %w", err)
	}
	b.buffer.Reset()
	_, err := b.w.Write(b.enc.Data)
	return err
}

func (b *blockCompressor) Close() error { return b.flush() }
