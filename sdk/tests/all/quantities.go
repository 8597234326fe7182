//go:build ignore

// Writes quantities.tsv: texts, and what k8s.io/apimachinery reads them as, in nano, or "error".
//
//	go -C scheduler run ../sdk/tests/all/quantities.go > sdk/tests/all/quantities.tsv
package main

import (
	"fmt"
	"math/rand"
	"strings"

	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
)

func main() {
	suffixes := strings.Split(",n,u,m,k,K,M,G,T,P,E,Ki,Mi,Gi,Ti,Pi,Ei,e0,e3,E3,e-3,e+2,E-12,e9,ki,mi,i,e,E+,e1.5,1Ki5,Ki5, ,B", ",")
	numbers := []string{"0", "1", "-1", "+1", "00", "007", "1.5", "-1.5", ".5", "5.", "0.1", "0.0000000001", "0.9999999999",
		"1.0000000000001", "123456789.123456789", "9223372036854775807", "9223372036854775808", "999999999999999999999",
		"1024", "1000", "1.1.1", "0x10", "-", "a"}
	r := rand.New(rand.NewSource(1))
	for range 40 {
		n := fmt.Sprint(r.Int63n(1_000_000))
		if r.Intn(2) == 0 {
			n += fmt.Sprintf(".%0*d", 1+r.Intn(14), r.Int63n(100_000))
		}
		numbers = append(numbers, n)
	}
	for _, n := range numbers {
		for _, s := range suffixes {
			text := n + s
			q, err := resource.ParseQuantity(text)
			if err != nil {
				fmt.Printf("%s\terror\n", text)
				continue
			}
			nano := new(inf.Dec).Mul(q.AsDec(), inf.NewDec(1_000_000_000, 0))
			fmt.Printf("%s\t%s\n", text, nano.Round(nano, 0, inf.RoundUp))
		}
	}
}
