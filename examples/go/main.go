// Handwritten digits that the network never saw.  usage: digits digits.so digits.test
package main

import (
	"fmt"
	"os"

	"digits/mcc"
)

const (
	side          = 8
	pixels        = side * side
	record        = 1 + pixels // the answer, then the pixels, 0 to 16
	neededPercent = 97
)

func best(probabilities []float32) int {
	at := 0
	for k, p := range probabilities {
		if p > probabilities[at] {
			at = k
		}
	}
	return at
}

func classify(library, pictures string) (bool, error) {
	bytes, err := os.ReadFile(pictures)
	if err != nil {
		return false, err
	}
	model, err := mcc.Load(library)
	if err != nil {
		return false, err
	}
	defer model.Close()
	run, err := model.NewContext()
	if err != nil {
		return false, err
	}
	defer run.Close()
	n := len(bytes) / record
	x, y := mcc.NewTensor(n, 1, side, side), mcc.NewTensor(n, 10)
	defer x.Free()
	defer y.Free()
	for i := range x.Data {
		x.Data[i] = float32(bytes[i/pixels*record+1+i%pixels]) / 16
	}
	if err := run.Run([]*mcc.Tensor{x}, []*mcc.Tensor{y}); err != nil {
		return false, err
	}
	right := 0
	for i := 0; i < n; i++ {
		if best(y.Data[i*10:(i+1)*10]) == int(bytes[i*record]) {
			right++
		}
	}
	fmt.Println(model.Inputs(), "->", model.Outputs())
	fmt.Printf("%d of %d pictures right\n", right, n)
	return 100*right >= neededPercent*n, nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: digits digits.so digits.test")
		os.Exit(2)
	}
	good, err := classify(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !good {
		os.Exit(1)
	}
}
