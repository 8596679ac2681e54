package bus

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one worker.
type metrics struct {
	deliveries   prometheus.Counter
	acked        prometheus.Counter
	retried      prometheus.Counter
	deadLettered *prometheus.CounterVec // by reason
	inFlight     prometheus.Gauge
	seconds      prometheus.Observer
}

// newMetrics registers the metrics; workers of one process share them and
// differ by labels. registerer may be nil.
func newMetrics(registerer prometheus.Registerer, stream, durable string) (metrics, error) {
	labels := []string{"stream", "durable"}
	counter := func(name, help string) (*prometheus.CounterVec, error) {
		return register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	deliveries, err1 := counter("hindsight_bus_deliveries_total", "Messages delivered to the worker, redeliveries included.")
	acked, err2 := counter("hindsight_bus_acked_total", "Messages acknowledged after the handler had finished them.")
	retried, err3 := counter("hindsight_bus_retried_total", "Messages given back to be delivered again.")
	dead, err4 := register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hindsight_bus_dead_lettered_total", Help: "Messages that became dead letters, by reason.",
	}, append(labels, "reason")))
	inFlight, err5 := register(registerer, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hindsight_bus_in_flight", Help: "Messages that the worker holds.",
	}, labels))
	seconds, err6 := register(registerer, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "hindsight_bus_batch_seconds", Help: "How long the handler took for a batch.",
		Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 60, 300},
	}, labels))
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return metrics{}, fmt.Errorf("register metrics: %w", err)
	}
	own := prometheus.Labels{"stream": stream, "durable": durable}
	deadOwn, err := dead.CurryWith(own)
	if err != nil {
		return metrics{}, fmt.Errorf("register metrics: %w", err)
	}
	return metrics{deliveries.With(own), acked.With(own), retried.With(own), deadOwn, inFlight.With(own), seconds.With(own)}, nil
}

// register registers a collector, or returns the one that an earlier worker
// registered.
func register[C prometheus.Collector](registerer prometheus.Registerer, collector C) (C, error) {
	if registerer == nil {
		return collector, nil
	}
	err := registerer.Register(collector)
	if already := (prometheus.AlreadyRegisteredError{}); errors.As(err, &already) {
		if earlier, ok := already.ExistingCollector.(C); ok {
			return earlier, nil
		}
	}
	return collector, err
}
