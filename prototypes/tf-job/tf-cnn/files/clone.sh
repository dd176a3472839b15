# Fetch one revision into $TARGET; a second run after a crash starts from what is there.
git init --quiet "$TARGET"
cd "$TARGET"
# A volume is root's, which git takes for somebody else's repository unless it is told which one is meant.
export GIT_DIR="$TARGET/.git"
git fetch --quiet --depth=1 -- "$REPOSITORY" "$REVISION"
git checkout --quiet --force FETCH_HEAD
