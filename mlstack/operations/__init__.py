"""The use cases: arguments in, a frozen result out; none of them prints, asks or calls another."""
