// Command noop-webhook allows whatever it is asked: the floor of any webhook that is called once.
//
//	noop-webhook ADDRESS CERTIFICATE KEY
//
// It reads nothing of a review but the uid, which is the first one in it, and answers it; everything but a POST is a probe.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
)

var before, after = []byte(`"uid":"`), []byte(`"`)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: noop-webhook ADDRESS CERTIFICATE KEY")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "noop-webhook:", http.ListenAndServeTLS(os.Args[1], os.Args[2], os.Args[3], http.HandlerFunc(allow)))
	os.Exit(1)
}

func allow(answer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		return
	}
	review, err := io.ReadAll(request.Body)
	_, rest, found := bytes.Cut(review, before)
	uid, _, ended := bytes.Cut(rest, after)
	if err != nil || !found || !ended {
		http.Error(answer, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	answer.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(answer, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"%s","allowed":true}}`, uid)
}
