package main

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tutti/scheduler/fakekubelet"
)

// TestTally: two jobs of two; one is whole from 10 s to 30 s, the other has one idle GPU from 20 s on.
func TestTally(t *testing.T) {
	tally := newTally(map[string]int{"a": 2, "b": 2})
	see := func(name, job string, phase v1.PodPhase, at int) {
		tally.see(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{fakekubelet.Collective: job}},
			Spec:       v1.PodSpec{NodeName: "n"}, Status: v1.PodStatus{Phase: phase},
		}, time.Duration(at)*time.Second)
	}
	see("a-0", "a", v1.PodRunning, 0)
	see("a-1", "a", v1.PodPending, 10)
	see("a-1", "a", v1.PodRunning, 11)
	see("b-0", "b", v1.PodRunning, 20)
	see("a-0", "a", v1.PodSucceeded, 30)
	see("a-1", "a", v1.PodSucceeded, 30)
	tally.pass(40 * time.Second)
	// a-0 waited 10 s; both of a worked 20 s; b-0 idles 20 s.
	if tally.worked != 40 || tally.taken != 70 || tally.peak != 2 || tally.jobs != 1 || tally.done != 2 || tally.working != 0 || tally.end != 40*time.Second {
		t.Errorf("%+v", tally)
	}
}

func TestReadTraining(t *testing.T) {
	w, err := readTraining("../../../testdata/examples/training-50x8/training.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(w.pods) != 400 || len(w.jobs) != 50 || w.gpus != 200 || len(w.cluster) != 250 || w.jobs["job-07"] != 8 {
		t.Errorf("%d pods, %d jobs, %d GPUs, %d nodes and groups", len(w.pods), len(w.jobs), w.gpus, len(w.cluster))
	}
	if _, err := readTraining("../../../testdata/scenarios/s-04-half-a-gang-has-room.yaml"); err == nil {
		t.Error("a scenario that is no such workload is taken")
	}
}

func TestMedian(t *testing.T) {
	of := func(r result) float64 { return r.rate }
	for want, rates := range map[float64][]float64{1: {1}, 2: {3, 1, 2}, 5: {9, 5, 1, 5, 7}} {
		var all []result
		for _, r := range rates {
			all = append(all, result{rate: r})
		}
		if m := median(all, of); m != want {
			t.Errorf("the median of %v is %v", rates, m)
		}
	}
}
