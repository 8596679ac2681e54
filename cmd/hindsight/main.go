// Command hindsight runs everything in one process (`hindsight up`) and is the operator's command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	a := &app{getenv: os.Getenv, environ: os.Environ(), stdin: interruptible(ctx, os.Stdin), stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(a.run(ctx, os.Args[1:]))
}
