// Prints what kstatus says of each file with a Kubernetes object: by it Flux waits for objects of any kind.
package main

import (
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	for _, path := range os.Args[1:] {
		result, err := read(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
		fmt.Printf("%s\t%s\t%s\n", path, result.Status, result.Message)
	}
}

func read(path string) (*status.Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return status.Compute(&object)
}
