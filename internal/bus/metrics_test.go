package bus_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func newRegistry(t *testing.T, collectors ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry() // checks that Describe tells all
	registry.MustRegister(collectors...)
	return registry
}

// gauge is the value of the metric that has all these label values.
func gauge(t *testing.T, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	metrics:
		for _, m := range family.GetMetric() {
			values := map[string]bool{}
			for _, label := range m.GetLabel() {
				values[label.GetValue()] = true
			}
			for _, label := range labels {
				if !values[label] {
					continue metrics
				}
			}
			return m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s with labels %v", name, labels)
	return 0
}
