// Package e2e tests the real kube-scheduler with plugin.wasm against a real API server and etcd. It has tests only. `make e2e`
// builds what they need: the binaries in scheduler/bin and the guests in out/guest.
//
// TestScenarios plays the files of testdata/scenarios, which the offline harness plays too, and looks at the same
// expectations. The other tests do what a file can't say. What is shown where:
//
//	a gang short of one member; starts within a second   TestLastMemberStartsTheGang
//	gangs interleaved on room for one                    TestInterleavedGangs; s-01, s-02, t-12
//	a member that can't fit rejects the whole gang       s-18, s-21
//	the timeout                                          s-17b, t-12
//	a held member is deleted                             s-39, t-11
//	the PodGroup is deleted                              s-15, t-07
//	a node with held members goes                        s-40
//	a held member is preempted                           s-25, s-27
//	minMember changes                                    s-14, t-02
//	two profiles share a gang                            TestTwoProfilesShareAGang
//	kill -9 with members held, or half bound             TestKilledWhileHeld, TestKilledWhileBinding; s-38, t-05
//	leader election fails over, held or half bound       the same, each "failover"
//	a binding is refused after the release               s-06, t-04, t-10
//	the API server is away                               TestAPIServerAway (killed), t-03 (cut off at the release)
//	no leak                                              TestNoLeak
//	the extension without the bridge                     TestStockExtension
//	a new plugin.wasm                                    TestUpgrade
//	status of PodGroups                                  TestStatusFollowsPods
//	the guests of examples/                              TestExampleGuests
//
// E2E_FULL=1 makes TestInterleavedGangs and TestNoLeak as long as their figures in docs/benchmarks.md.
package e2e
