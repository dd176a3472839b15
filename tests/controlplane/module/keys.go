package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
)

// runKeys writes an RSA key pair for service-account tokens, so that no openssl is needed.
//
// Its one argument is the directory that gets sa.key (private) and sa.pub (public).
func runKeys(arguments []string) int {
	if len(arguments) != 2 {
		fmt.Fprintln(os.Stderr, "usage: keys DIRECTORY")
		return 2
	}
	if err := writeKeys(arguments[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func writeKeys(directory string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	private := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	if err := writeBlock(filepath.Join(directory, "sa.key"), private); err != nil {
		return err
	}
	encoded, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return writeBlock(filepath.Join(directory, "sa.pub"), &pem.Block{Type: "PUBLIC KEY", Bytes: encoded})
}

func writeBlock(path string, block *pem.Block) error {
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}
