# Fetch one revision into $TARGET; a second run after a crash starts from what is there.
git init --quiet "$TARGET"
cd "$TARGET"
git fetch --quiet --depth=1 -- "$REPOSITORY" "$REVISION"
git checkout --quiet --force FETCH_HEAD
